//! Findings on the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Text;

/// `memtrace doctor --json` writes this object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis<'a> {
    /// Findings, ordered as in the text output.
    pub findings: Vec<Finding<'a>>,
    /// Version of this format: 1.
    pub schema_version: u32,
    /// The worst verdict of the findings. `info` does not count. `ok` if there are no findings.
    pub verdict: Text<'a>,
}

/// Finding of `memtrace doctor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding<'a> {
    /// The finding in words.
    pub detail: Text<'a>,
    /// Action that helps; `null` if none is needed or known.
    pub remedy: Option<Text<'a>>,
    /// Examined part of the machine.
    pub subject: Text<'a>,
    /// `ok`, `info`, `warn` or `fail`.
    pub verdict: Text<'a>,
}
