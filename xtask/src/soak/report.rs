//! The reports of the trace.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// Properties of the reports.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) json_bytes: u64,
    pub(super) svg_bytes: u64,
    pub(super) content: Content,
}

/// The parts of the JSON report that are compared. The reader skips all others without keeping them.
#[derive(Debug, Deserialize)]
pub(super) struct Content {
    totals: Totals,
    losses: BTreeMap<String, u64>,
    stack_quality: BTreeMap<String, f64>,
    processes: Vec<Process>,
}

#[derive(Debug, Deserialize)]
struct Totals {
    alloc_count: u64,
}

/// An entry of a process or of a group of processes.
#[derive(Debug, Deserialize)]
struct Process {
    /// Number of processes of a group.
    runs: Option<u64>,
}

/// Reads the reports in `folder`.
pub(super) fn read(folder: &Path) -> Result<Report> {
    let size = |name: &str| -> Result<u64> {
        Ok(fs::metadata(folder.join(name)).with_context(|| format!("memtrace wrote no {name}"))?.len())
    };
    let json = File::open(folder.join("report.json")).context("memtrace wrote no report.json")?;
    let content = serde_json::from_reader(BufReader::new(json)).context("the JSON report cannot be read")?;
    Ok(Report { json_bytes: size("report.json")?, svg_bytes: size("report.svg")?, content })
}

impl Content {
    pub(super) fn allocations(&self) -> u64 {
        self.totals.alloc_count
    }

    /// Returns the losses that occurred.
    pub(super) fn losses(&self) -> BTreeMap<&str, u64> {
        self.losses.iter().filter(|&(_, &count)| count > 0).map(|(name, &count)| (name.as_str(), count)).collect()
    }

    /// Returns the share of allocations with a complete stack.
    pub(super) fn complete(&self) -> f64 {
        self.stack_quality.get("complete").copied().unwrap_or_default()
    }

    /// Returns the stack ends of the other stacks and their shares, the most frequent first.
    pub(super) fn incomplete(&self) -> Vec<(&str, f64)> {
        let mut ends: Vec<_> = self.stack_quality.iter().map(|(name, &share)| (name.as_str(), share)).collect();
        ends.retain(|&(name, share)| name != "complete" && share > 0.0);
        ends.sort_by(|one, other| other.1.total_cmp(&one.1));
        ends
    }

    /// Returns the number of entries, and the number of processes in them.
    pub(super) fn processes(&self) -> (usize, u64) {
        (self.processes.len(), self.processes.iter().map(|process| process.runs.unwrap_or(1)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_count_as_their_processes() {
        let text = r#"{"totals": {"alloc_count": 7, "x": 1}, "losses": {"a": 0, "b": 3}, "stacks": [{}],
            "stack_quality": {"complete": 0.5, "cut": 0.25, "none": 0, "other": 0.25},
            "processes": [{"pid": 1}, {"pid": null, "runs": 412}]}"#;
        let content: Content = serde_json::from_str(text).unwrap();
        assert_eq!((content.allocations(), content.processes()), (7, (2, 413)));
        assert_eq!(content.losses(), BTreeMap::from([("b", 3)]));
        assert_eq!(content.incomplete(), [("cut", 0.25), ("other", 0.25)]);
    }
}
