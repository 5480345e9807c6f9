//! Result of a run of memtrace: exit code, output and reports.

use std::fs;

use crate::accounts::Accounts;
use crate::activity::Activity;
use crate::report::Report;
use crate::scratch::Scratch;

pub struct Outcome {
    /// Exit code of memtrace; `None` if a signal ended it.
    pub code: Option<i32>,
    pub stderr: String,
    /// Standard output of memtrace and of the command that it started.
    pub stdout: String,
    pub(crate) scratch: Scratch,
}

impl Outcome {
    /// Returns the report. The exit code must be 0.
    #[must_use]
    pub fn report(&self) -> Report {
        self.report_with_code(0)
    }

    /// Returns the report. The exit code must be `code`.
    #[must_use]
    pub fn report_with_code(&self, code: i32) -> Report {
        self.assert_code(code);
        self.read("out.json")
    }

    /// Returns the report of `memtrace accounts`. The exit code must be 0.
    #[must_use]
    pub fn accounts(&self) -> Accounts {
        self.assert_code(0);
        let text = fs::read_to_string(self.scratch.join("out.json")).expect("the accounts were written");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in the accounts:\n{text}"))
    }

    /// Returns the activity of threads in the report, which must have no losses. The exit code must be 0.
    #[must_use]
    pub fn activity(&self) -> Activity {
        let activity = self.activity_with_code(0);
        assert!(activity.losses.values().all(|count| *count == 0), "{:?}", activity.losses);
        activity
    }

    /// Returns the activity of threads in the report. The exit code must be `code`.
    #[must_use]
    pub fn activity_with_code(&self, code: i32) -> Activity {
        self.assert_code(code);
        let text = fs::read_to_string(self.scratch.join("out.json")).expect("the JSON report was written");
        Activity::read(&text).unwrap_or_else(|error| panic!("{error} in the activity:\n{text}"))
    }

    /// Returns the report of one event class, in a trace of several. The exit code must be 0.
    #[must_use]
    pub fn report_for(&self, event_class: &str) -> Report {
        self.assert_code(0);
        self.read(&format!("out.{event_class}.json"))
    }

    fn read(&self, name: &str) -> Report {
        let text = fs::read_to_string(self.scratch.join(name)).expect("the JSON report was written");
        Report::read(&text).unwrap_or_else(|error| panic!("{error} in the JSON report:\n{text}"))
    }

    /// Returns the folded stacks with their values.
    #[must_use]
    pub fn folded(&self) -> Vec<(String, u64)> {
        let text = fs::read_to_string(self.scratch.join("out.folded")).expect("the folded stacks were written");
        let parsed = text.lines().map(|line| {
            let (stack, value) = line.rsplit_once(' ')?;
            Some((stack.to_owned(), value.parse().ok()?))
        });
        parsed.map(|line| line.unwrap_or_else(|| panic!("not folded stacks: {text}"))).collect()
    }

    pub fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "standard error of memtrace: {}", self.stderr);
    }

    /// Asserts that memtrace exited with `code` before it attached, wrote no report, and printed an error message with
    /// all `words`.
    pub fn assert_refused(&self, code: i32, words: &[&str]) {
        self.assert_code(code);
        assert!(!self.stderr.lines().any(|line| line.starts_with("attached")), "memtrace attached: {}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {}", self.stderr);
        }
        for name in ["out.json", "out.folded"] {
            assert!(!self.scratch.join(name).exists(), "{name} was written");
        }
    }
}
