//! Violation of a rule, and its text.

use std::fmt;

use super::tree::Source;

/// Violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Violation {
    pub(super) path: String,
    /// Line of the violation, from 1; 0 for the whole file.
    pub(super) line: usize,
    pub(super) message: String,
}

impl Violation {
    pub(super) fn new(source: &Source, line: usize, message: impl Into<String>) -> Self {
        Self { path: source.path.clone(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violation_is_shown_with_file_and_line() {
        let violation = Violation { path: String::from("a.rs"), line: 3, message: String::from("no") };
        assert_eq!(violation.to_string(), "a.rs:3: no");
        assert_eq!(Violation { line: 0, ..violation }.to_string(), "a.rs: no");
    }
}
