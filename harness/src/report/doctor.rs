//! What `memtrace doctor` says, read from its JSON.

use serde::Deserialize;

/// All that it says.
#[derive(Debug, Deserialize)]
pub struct Told {
    /// What it found.
    pub findings: Vec<Finding>,
    /// What it ended with; `None`: a signal.
    #[serde(skip)]
    pub code: Option<i32>,
    /// What it wrote to standard error.
    #[serde(skip)]
    pub errors: String,
}

/// What it says of one thing.
#[derive(Debug, Deserialize)]
pub struct Finding {
    /// Of what.
    pub subject: String,
    /// What is to be held of it: `ok`, `info`, `warn` or `fail`.
    pub verdict: String,
    /// What was seen.
    pub detail: String,
    /// What can be done.
    pub remedy: Option<String>,
}

impl Told {
    /// The subjects with this verdict.
    #[must_use]
    pub fn subjects(&self, verdict: &str) -> Vec<&str> {
        let found = self.findings.iter().filter(|finding| finding.verdict == verdict);
        found.map(|finding| finding.subject.as_str()).collect()
    }

    /// The findings about a subject.
    #[must_use]
    pub fn about(&self, subject: &str) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.subject == subject).collect()
    }
}
