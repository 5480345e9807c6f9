//! Script that a guest runs, and the parser of its output.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context as _, Result};

use crate::test::{BinaryResult, TestLine};

/// Start of the lines that separate the outputs of the commands.
const MARK: &str = "@@guest";

/// Word after [`MARK`] in the last line of a complete output.
const DONE: &str = "done";

/// Script under construction.
pub(super) struct Script(String);

impl Script {
    /// Creates a script that exports these variables.
    pub(super) fn with(variables: &[(&str, &str)]) -> Self {
        let exports = variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
        Self(exports.collect())
    }

    /// Adds the command `words`, which runs in `folder` with a time limit.
    pub(super) fn part(&mut self, name: &str, folder: &str, seconds: u64, words: &[&str]) {
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        let (folder, words) = (quoted(folder), words.join(" "));
        self.0.push_str(&format!(
            "echo '{MARK} begin {name}'\n\
             (cd {folder} && CARGO_MANIFEST_DIR={folder} exec timeout -k 5 {seconds} {words})\n\
             echo \"{MARK} end $?\"\n"
        ));
    }

    /// Returns the complete script.
    pub(super) fn finish(self) -> String {
        self.0 + &format!("echo '{MARK} {DONE}'\n")
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Output of one command of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) lines: Vec<String>,
    /// Exit status, if the command finished.
    pub(super) status: Option<i32>,
}

/// Output of a guest.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    parts: Vec<Part>,
    done: bool,
}

impl Transcript {
    /// Parses the next line.
    pub(super) fn read_line(&mut self, line: &str) {
        // The last line of a command may lack a newline, so a mark can follow it in the same line.
        let Some((before, mark)) = line.split_once(MARK) else {
            self.add_line(line);
            return;
        };
        if !before.is_empty() {
            self.add_line(before);
        }
        match mark.trim().split_once(' ') {
            Some(("begin", name)) => self.parts.push(Part { name: name.to_owned(), ..Part::default() }),
            Some(("end", status)) => {
                if let Some(part) = self.parts.last_mut() {
                    part.status = status.parse().ok();
                }
            }
            _ => self.done |= mark.trim() == DONE,
        }
    }

    fn add_line(&mut self, line: &str) {
        if let Some(part) = self.parts.last_mut() {
            part.lines.push(line.to_owned());
        }
    }

    /// Returns true if the script finished.
    pub(super) const fn is_complete(&self) -> bool {
        self.done
    }

    /// Returns the output of the command with this name.
    pub(super) fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }
}

impl Part {
    /// Returns the complete output of the command.
    pub(super) fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// Parses the output of a test binary.
    pub(super) fn result(&self) -> BinaryResult {
        let mut result = BinaryResult::default();
        self.lines.iter().for_each(|line| result.read_line(line));
        // A command without a status was killed with the guest.
        result.end(ExitStatus::from_raw(self.status.unwrap_or(255) << 8));
        result
    }

    /// Returns the differences between the tests that ran and the expected tests.
    pub(super) fn compare(&self, expected: &BTreeSet<String>) -> Vec<String> {
        let tests = self.lines.iter().filter_map(|line| TestLine::parse(line));
        let ran: BTreeSet<String> =
            tests.filter(|test| test.result != "ignored").map(|test| test.name.to_owned()).collect();
        let missing = expected.difference(&ran).map(|name| format!("{name} did not run"));
        let unexpected = ran.difference(expected).map(|name| format!("{name} ran unexpectedly"));
        missing.chain(unexpected).collect()
    }
}

/// Returns a path as text for a script.
pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Transcript {
        let mut transcript = Transcript::default();
        lines.iter().for_each(|line| transcript.read_line(line));
        transcript
    }

    #[test]
    fn output_of_a_script_is_split_into_parts() {
        let mut script = Script::with(&[("NAME", "it's")]);
        script.part("first", "/", 5, &["sh", "-c", "echo $NAME; pwd; printf open"]);
        script.part("second", "/tmp", 5, &["false"]);
        let output = std::process::Command::new("sh").arg("-c").arg(script.finish()).output().unwrap();
        let transcript = read(&String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>());
        assert!(transcript.is_complete());
        let first = transcript.part("first").unwrap();
        assert_eq!((first.text().as_str(), first.status), ("it's\n/\nopen", Some(0)));
        let second = transcript.part("second").unwrap();
        assert_eq!((second.text().as_str(), second.status), ("", Some(1)));
        assert_eq!(transcript.part("third"), None);
    }

    #[test]
    fn lost_output_is_an_incomplete_transcript() {
        let transcript = read(&["@@guest begin a", "test b ... ok"]);
        assert!(!transcript.is_complete());
        assert_eq!(transcript.part("a").unwrap().status, None);
        assert_ne!(transcript.part("a").unwrap().result(), BinaryResult::default());
    }

    #[test]
    fn missing_and_unexpected_tests_are_reported() {
        let part = read(&["@@guest begin a", "test b ... ok <2.5s>", "test c ... FAILED", "test d ... ignored"]);
        let part = part.part("a").unwrap();
        let compare = |names: &[&str]| part.compare(&names.iter().map(ToString::to_string).collect());
        assert_eq!(compare(&["b", "c"]), [""; 0]);
        assert_eq!(compare(&["b", "c", "d"]), ["d did not run"]);
        assert_eq!(compare(&["b"]), ["c ran unexpectedly"]);
    }
}
