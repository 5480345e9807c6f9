//! What came of a trace: how it ended, what it said, and its reports.

use std::fs;

use crate::report::Report;
use crate::scratch::Scratch;

/// What came of a trace.
pub struct Outcome {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard error.
    pub errors: String,
    /// What it, or the command that it started, wrote to standard output.
    pub output: String,
    pub(crate) scratch: Scratch,
}

impl Outcome {
    /// The report of a trace that went well.
    ///
    /// # Panics
    ///
    /// If the exit code isn't 0 or the report can't be read.
    #[must_use]
    pub fn report(&self) -> Report {
        self.report_with_code(0)
    }

    /// The report of a trace that ended with `code`.
    ///
    /// # Panics
    ///
    /// If it ended with another, or the report can't be read.
    #[must_use]
    pub fn report_with_code(&self, code: i32) -> Report {
        self.assert_code(code);
        self.read("out.json")
    }

    /// The report of one class of the events that were followed in a trace that went well.
    ///
    /// # Panics
    ///
    /// As [`Outcome::report`].
    #[must_use]
    pub fn report_of(&self, events: &str) -> Report {
        self.assert_code(0);
        self.read(&format!("out.{events}.json"))
    }

    fn read(&self, name: &str) -> Report {
        let text = fs::read_to_string(self.scratch.join(name)).expect("the JSON report was written");
        Report::read(&text).unwrap_or_else(|error| panic!("the JSON report cannot be read: {error}\n{text}"))
    }

    /// The folded stacks, line by line: the frames and the value.
    ///
    /// # Panics
    ///
    /// If they weren't written or aren't folded stacks.
    #[must_use]
    pub fn folded(&self) -> Vec<(String, u64)> {
        let text = fs::read_to_string(self.scratch.join("out.folded")).expect("the folded stacks were written");
        let parsed = text.lines().map(|line| {
            let (stack, value) = line.rsplit_once(' ')?;
            Some((stack.to_owned(), value.parse().ok()?))
        });
        parsed.map(|line| line.unwrap_or_else(|| panic!("not folded stacks: {text}"))).collect()
    }

    /// Asserts how it ended.
    ///
    /// # Panics
    ///
    /// If it ended with another code.
    pub fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "memtrace said: {}", self.errors);
    }

    /// Asserts that it ended with `code` before any probe was in place, wrote no report, and said why in these words.
    ///
    /// # Panics
    ///
    /// Otherwise.
    pub fn assert_refused(&self, code: i32, words: &[&str]) {
        self.assert_code(code);
        assert!(!self.errors.lines().any(|line| line.starts_with("attached")), "it attached: {}", self.errors);
        for word in words {
            assert!(self.errors.contains(word), "`{word}` is not in: {}", self.errors);
        }
        for name in ["out.json", "out.folded"] {
            assert!(!self.scratch.join(name).exists(), "{name} was left behind");
        }
    }
}
