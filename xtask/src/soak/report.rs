//! Reads the reports of the trace.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context as _, Result};
use memtrace_json::Process;
use serde::de::IgnoredAny;

/// Sizes of the reports, and the content of the JSON report.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) json_bytes: u64,
    pub(super) svg_bytes: u64,
    content: Content,
}

/// JSON report. Groups, frames, stacks and activity can be long and are not compared, so the reader skips them.
type Content = memtrace_json::Report<'static, Vec<Process<'static>>, IgnoredAny, IgnoredAny, IgnoredAny, IgnoredAny>;

/// Reads the reports in `folder`.
pub(super) fn read(folder: &Path) -> Result<Report> {
    let size = |name: &str| -> Result<u64> {
        Ok(fs::metadata(folder.join(name)).with_context(|| format!("memtrace wrote no {name}"))?.len())
    };
    let json = File::open(folder.join("report.json")).context("memtrace wrote no report.json")?;
    let content = serde_json::from_reader(BufReader::new(json)).context("the JSON report cannot be read")?;
    Ok(Report { json_bytes: size("report.json")?, svg_bytes: size("report.svg")?, content })
}

impl Report {
    pub(super) fn allocations(&self) -> u64 {
        self.content.totals.alloc_count
    }

    /// Returns the losses that are not 0.
    pub(super) fn losses(&self) -> BTreeMap<&str, u64> {
        let losses = self.content.losses.iter().filter(|&(_, &count)| count > 0);
        losses.map(|(name, &count)| (name.as_ref(), count)).collect()
    }

    /// Returns the share of allocations with a complete stack.
    pub(super) fn complete(&self) -> f64 {
        self.content.stack_quality.get("complete").copied().unwrap_or_default()
    }

    /// Returns the ends of incomplete stacks, and their shares of the allocations, the most frequent end first.
    pub(super) fn incomplete(&self) -> Vec<(&str, f64)> {
        let ends = self.content.stack_quality.iter();
        let mut ends: Vec<_> = ends.map(|(name, &share)| (name.as_ref(), share)).collect();
        ends.retain(|&(name, share)| name != "complete" && share > 0.0);
        ends.sort_by(|one, other| other.1.total_cmp(&one.1));
        ends
    }

    /// Returns the number of entries for processes, and the number of processes in these entries.
    pub(super) fn processes(&self) -> (usize, u64) {
        let processes = &self.content.processes;
        (processes.len(), processes.iter().map(|process| process.group.as_ref().map_or(1, |group| group.runs)).sum())
    }
}

#[cfg(test)]
mod tests {
    use memtrace_json::{GroupRuns, Numbers, Object, Stack};

    use super::*;

    #[test]
    fn groups_count_as_their_processes() {
        let group = Process { group: Some(GroupRuns { runs: 412, ..GroupRuns::default() }), ..Process::default() };
        let written: memtrace_json::Report<'_> = memtrace_json::Report {
            totals: Numbers { alloc_count: 7, ..Numbers::default() },
            losses: Object::from([("a".into(), 0), ("b".into(), 3)]),
            stack_quality: [("complete", 0.5), ("cut", 0.25), ("none", 0.0), ("other", 0.25)]
                .map(|(end, share)| (end.into(), share))
                .into(),
            processes: vec![Process { pid: Some(1), ..Process::default() }, group],
            stacks: vec![Stack::default()],
            ..memtrace_json::Report::default()
        };
        let content = serde_json::from_str(&serde_json::to_string(&written).unwrap()).unwrap();
        let report = Report { json_bytes: 0, svg_bytes: 0, content };
        assert_eq!((report.allocations(), report.processes()), (7, (2, 413)));
        assert_eq!(report.losses(), BTreeMap::from([("b", 3)]));
        assert_eq!((report.complete(), report.incomplete()), (0.5, vec![("cut", 0.25), ("other", 0.25)]));
    }
}
