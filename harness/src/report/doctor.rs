//! The report of `memtrace doctor`.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub struct DoctorReport {
    pub findings: Vec<Finding>,
    /// Exit code; `None` if a signal ended it.
    #[serde(skip)]
    pub code: Option<i32>,
    #[serde(skip)]
    pub stderr: String,
}

#[derive(Debug, Deserialize)]
pub struct Finding {
    pub subject: String,
    /// `ok`, `info`, `warn` or `fail`.
    pub verdict: String,
    pub detail: String,
    pub remedy: Option<String>,
}

impl DoctorReport {
    /// Returns the subjects of the findings with this verdict.
    #[must_use]
    pub fn subjects(&self, verdict: &str) -> Vec<&str> {
        let findings = self.findings.iter().filter(|finding| finding.verdict == verdict);
        findings.map(|finding| finding.subject.as_str()).collect()
    }

    /// Returns the findings on a subject.
    #[must_use]
    pub fn findings_on(&self, subject: &str) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.subject == subject).collect()
    }
}
