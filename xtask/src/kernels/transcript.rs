//! What is run in a guest, as one script, and what it wrote, taken apart again.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use crate::test::Ran;

/// Begins the lines that stand between the parts.
const MARK: &str = "@@guest";

/// The last line: everything was run.
const DONE: &str = "done";

/// A script in the making.
pub(super) struct Script(String);

impl Script {
    /// Sets variables for all that is run.
    pub(super) fn with(variables: &[(&str, &str)]) -> Self {
        let exports = variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
        Self(exports.collect())
    }

    /// Runs a program in a folder, for so many seconds at most.
    pub(super) fn part(&mut self, name: &str, folder: &str, seconds: u64, words: &[&str]) {
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        let (folder, words) = (quoted(folder), words.join(" "));
        self.0.push_str(&format!(
            "echo '{MARK} begin {name}'\n\
             (cd {folder} && CARGO_MANIFEST_DIR={folder} exec timeout -k 5 {seconds} {words})\n\
             echo \"{MARK} end $?\"\n"
        ));
    }

    /// The whole.
    pub(super) fn finish(self) -> String {
        self.0 + &format!("echo '{MARK} {DONE}'\n")
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// What one part wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) lines: Vec<String>,
    /// Its exit status, where it was told.
    pub(super) status: Option<i32>,
}

/// What a guest wrote.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    parts: Vec<Part>,
    done: bool,
}

impl Transcript {
    /// Takes the next line.
    pub(super) fn read_line(&mut self, line: &str) {
        // A program may have left its last line open.
        let Some((before, told)) = line.split_once(MARK) else {
            self.keep(line);
            return;
        };
        if !before.is_empty() {
            self.keep(before);
        }
        match told.trim().split_once(' ') {
            Some(("begin", name)) => self.parts.push(Part { name: name.to_owned(), ..Part::default() }),
            Some(("end", status)) => {
                if let Some(part) = self.parts.last_mut() {
                    part.status = status.parse().ok();
                }
            }
            _ => self.done |= told.trim() == DONE,
        }
    }

    fn keep(&mut self, line: &str) {
        if let Some(part) = self.parts.last_mut() {
            part.lines.push(line.to_owned());
        }
    }

    /// Whether it came to its end.
    pub(super) const fn is_whole(&self) -> bool {
        self.done
    }

    /// The part called so.
    pub(super) fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }
}

impl Part {
    /// All that it wrote.
    pub(super) fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// The results of a test program.
    pub(super) fn ran(&self) -> Ran {
        let mut ran = Ran::default();
        self.lines.iter().for_each(|line| ran.read_line(line));
        // What was killed with the guest did not succeed.
        ran.end(ExitStatus::from_raw(self.status.unwrap_or(255) << 8));
        ran
    }

    /// What is wrong with the tests that ran, compared with those that had to.
    pub(super) fn compare(&self, expected: &BTreeSet<String>) -> Vec<String> {
        let results = ["ok", "FAILED"];
        let ran: BTreeSet<String> = self
            .lines
            .iter()
            .filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
            .filter(|(_, result)| results.contains(result))
            .map(|(name, _)| name.to_owned())
            .collect();
        let missing = expected.difference(&ran).map(|name| format!("{name} did not run"));
        let more = ran.difference(expected).map(|name| format!("{name} ran, and nobody knows of it"));
        missing.chain(more).collect()
    }
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
    fn a_script_runs_as_the_shell_reads_it_and_its_output_is_taken_apart() {
        let mut script = Script::with(&[("NAME", "it's")]);
        script.part("first", "/", 5, &["sh", "-c", "echo $NAME; pwd; printf open"]);
        script.part("second", "/tmp", 5, &["false"]);
        let output = std::process::Command::new("sh").arg("-c").arg(script.finish()).output().unwrap();
        let transcript = read(&String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>());
        assert!(transcript.is_whole());
        let first = transcript.part("first").unwrap();
        assert_eq!((first.text().as_str(), first.status), ("it's\n/\nopen", Some(0)));
        let second = transcript.part("second").unwrap();
        assert_eq!((second.text().as_str(), second.status), ("", Some(1)));
        assert_eq!(transcript.part("third"), None);
    }

    #[test]
    fn lost_output_is_noticed() {
        let transcript = read(&["@@guest begin a", "test b ... ok"]);
        assert!(!transcript.is_whole());
        assert_eq!(transcript.part("a").unwrap().status, None);
        assert_ne!(transcript.part("a").unwrap().ran(), Ran::default());
    }

    #[test]
    fn exactly_the_expected_tests_must_have_run() {
        let part = read(&["@@guest begin a", "test b ... ok", "test c ... FAILED", "test d ... ignored"]);
        let part = part.part("a").unwrap();
        let compare = |names: &[&str]| part.compare(&names.iter().map(ToString::to_string).collect());
        assert_eq!(compare(&["b", "c"]), [""; 0]);
        assert_eq!(compare(&["b", "c", "d"]), ["d did not run"]);
        assert_eq!(compare(&["b"]), ["c ran, and nobody knows of it"]);
    }
}
