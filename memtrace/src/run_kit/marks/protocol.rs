//! Messages between a run and `memtrace mark` or `memtrace reset`: lines of text with fields separated by tabs.
//!
//! The run sends a greeting. The client sends the text of a mark and gets one answer.

use std::time::Duration;

/// Longest text of a mark, in bytes.
const MAX_TEXT: usize = 200;

/// Longest line, in bytes. A path has at most 4096 bytes (`PATH_MAX`), and each byte can be
/// escaped.
pub(super) const MAX_LINE: usize = 1 << 15;

/// Service of a run: its response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// The run records, and sets a mark.
    Recording,
    /// The run keeps accounts, and starts new water marks.
    Accounts,
}

impl Service {
    /// Returns the first field of a greeting, which contains the version of the messages.
    const fn greeting(self) -> &'static str {
        match self {
            Self::Recording => "memtrace-mark-1",
            Self::Accounts => "memtrace-accounts-1",
        }
    }

    /// Returns the command that requests this service.
    pub(super) const fn command(self) -> &'static str {
        match self {
            Self::Recording => "memtrace mark",
            Self::Accounts => "memtrace reset",
        }
    }

    /// Returns the plural noun for runs with the service.
    pub(super) const fn plural(self) -> &'static str {
        match self {
            Self::Recording => "recordings",
            Self::Accounts => "traces with accounts",
        }
    }
}

/// A mark that a run has set: a mark of the recording, or the start of new water marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredMark {
    /// Text of the mark. In a recording, it differs from the texts of all other marks.
    pub(crate) text: String,
    /// Time since the start of the trace.
    pub(crate) at: Duration,
}

/// Checks that `text` can be the text of a mark. The error is the reason that it cannot.
pub(crate) fn check(text: &str) -> Result<(), &'static str> {
    match text {
        _ if text.trim().is_empty() => Err("it is empty"),
        _ if text.len() > MAX_TEXT => Err("it is longer than 200 bytes"),
        _ if text.chars().any(char::is_control) => Err("it has control characters, such as a line break"),
        _ => Ok(()),
    }
}

/// Returns the greeting of a run. `name`: printable path of the recording, or name of the targets.
pub(super) fn greeting(service: Service, pid: u32, name: &str) -> String {
    format!("{}\t{pid}\t{name}\n", service.greeting())
}

/// Returns the service, the pid and the name in a greeting; `None` if `line` is no greeting of this version.
pub(super) fn parse_greeting(line: &str) -> Option<(Service, u32, &str)> {
    let (service, rest) = line.trim_end_matches('\n').split_once('\t')?;
    let service = [Service::Recording, Service::Accounts].into_iter().find(|known| known.greeting() == service)?;
    let (pid, name) = rest.split_once('\t')?;
    Some((service, pid.parse().ok()?, name))
}

/// Returns the answer to a request: the mark, or the reason that it is refused.
pub(super) fn answer(result: &Result<StoredMark, String>) -> String {
    match result {
        Ok(mark) => format!("stored\t{}\t{}\n", mark.at.as_nanos(), mark.text),
        Err(reason) => format!("refused\t{reason}\n"),
    }
}

/// Returns the result in an answer; `None` if the answer is incomplete.
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
        for service in [Service::Recording, Service::Accounts] {
            let line = greeting(service, 47, "/a b.memtrace");
            assert_eq!(parse_greeting(&line), Some((service, 47, "/a b.memtrace")));
        }
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
