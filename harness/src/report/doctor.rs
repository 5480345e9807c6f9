//! The report of `memtrace doctor`.

use std::ops::Deref;

use memtrace_json::Diagnosis;
use serde::Deserialize;

pub type Finding = memtrace_json::Finding<'static>;

#[derive(Debug, Deserialize)]
pub struct DoctorReport {
    #[serde(flatten)]
    pub diagnosis: Diagnosis<'static>,
    /// Exit code of memtrace; `None` if a signal ended it.
    #[serde(skip)]
    pub code: Option<i32>,
    #[serde(skip)]
    pub stderr: String,
}

impl Deref for DoctorReport {
    type Target = Diagnosis<'static>;

    fn deref(&self) -> &Self::Target {
        &self.diagnosis
    }
}

impl DoctorReport {
    /// Returns the subjects of the findings with this verdict.
    #[must_use]
    pub fn subjects(&self, verdict: &str) -> Vec<&str> {
        let findings = self.findings.iter().filter(|finding| finding.verdict == verdict);
        findings.map(|finding| &*finding.subject).collect()
    }

    /// Returns the findings on a subject.
    #[must_use]
    pub fn findings_on(&self, subject: &str) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.subject == subject).collect()
    }
}
