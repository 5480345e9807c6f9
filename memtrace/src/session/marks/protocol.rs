//! Messages between a running recording and `memtrace mark`: lines of text with fields that tabs separate.
//!
//! The recording sends a greeting. The client sends the text of a mark and gets one answer.

use std::time::Duration;

/// Longest text of a mark in bytes.
const MAX_TEXT: usize = 200;

/// Longest line in bytes. A path has at most 4096 bytes (`PATH_MAX`), of which each can be escaped.
pub(super) const MAX_LINE: usize = 1 << 15;

/// Beginning of a greeting, with the version of the messages.
const GREETING: &str = "memtrace-mark-1";

/// A mark in the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredMark {
    /// The text, different for each mark.
    pub(crate) text: String,
    /// Time since the start of the trace.
    pub(crate) at: Duration,
}

/// Returns the reason for which `text` cannot be a mark.
pub(crate) fn check(text: &str) -> Result<(), &'static str> {
    match text {
        _ if text.trim().is_empty() => Err("it is empty"),
        _ if text.len() > MAX_TEXT => Err("it is longer than 200 bytes"),
        _ if text.chars().any(char::is_control) => Err("it has control characters, such as a line break"),
        _ => Ok(()),
    }
}

/// Returns the greeting of a process that records to `file`, a printable path.
pub(super) fn greeting(pid: u32, file: &str) -> String {
    format!("{GREETING}\t{pid}\t{file}\n")
}

/// Returns the pid and the file of a greeting.
pub(super) fn parse_greeting(line: &str) -> Option<(u32, &str)> {
    let (pid, file) = line.trim_end_matches('\n').strip_prefix(GREETING)?.strip_prefix('\t')?.split_once('\t')?;
    Some((pid.parse().ok()?, file))
}

/// Returns the answer to a request: the mark, or the reason for which there is none.
pub(super) fn answer(result: &Result<StoredMark, String>) -> String {
    match result {
        Ok(mark) => format!("stored\t{}\t{}\n", mark.at.as_nanos(), mark.text),
        Err(reason) => format!("refused\t{reason}\n"),
    }
}

/// Returns the result in an answer; `None` if it is incomplete.
pub(super) fn parse_answer(line: &str) -> Option<Result<StoredMark, String>> {
    match line.strip_suffix('\n')?.split_once('\t')? {
        ("stored", mark) => {
            let (at, text) = mark.split_once('\t')?;
            Some(Ok(StoredMark { at: Duration::from_nanos(at.parse().ok()?), text: text.to_owned() }))
        }
        ("refused", reason) => Some(Err(reason.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written() {
        assert_eq!(parse_greeting(&greeting(47, "/a b.memtrace")), Some((47, "/a b.memtrace")));
        assert_eq!(parse_greeting("HTTP/1.1 400 Bad Request\n"), None);
        for result in [
            Ok(StoredMark { text: String::from("a #2"), at: Duration::from_nanos(1_500_000_001) }),
            Err(String::from("too many")),
        ] {
            let line = answer(&result);
            assert_eq!(parse_answer(&line), Some(result));
            assert_eq!(parse_answer(&line[..line.len() - 1]), None);
        }
    }

    #[test]
    fn texts_fit_into_a_line() {
        assert_eq!(check("after the deployment of 1.2"), Ok(()));
        assert!(check(" ").is_err() && check("a\nb").is_err() && check("a\tb").is_err());
        assert!(check(&"x".repeat(MAX_TEXT)).is_ok() && check(&"x".repeat(MAX_TEXT + 1)).is_err());
    }
}
