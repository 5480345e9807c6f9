//! Kernel features that `memtrace doctor` finds in guests, and the table of these features in the documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, bail};
use harness::report::doctor::{DoctorReport, Finding};

use super::supported::{self, Kernel};
use crate::ui;
use crate::workspace::Workspace;

/// Document with the table.
const DOCUMENT: &str = "docs/kernels.md";
const BEGIN: &str = "<!-- written by `cargo xtask kernels table` -->";
const END: &str = "<!-- end -->";

/// Subjects of doctor's findings that depend on the kernel.
const SUBJECTS: &[&str] =
    &["type information", "uprobes", "ring buffers", "BPF programs", "probes", "control groups", "perf mmap events"];

/// Features of a kernel: the verdict and the detail of each subject. The detail of a good verdict is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Features(BTreeMap<String, (String, String)>);

impl Features {
    /// Parses the output of `memtrace doctor --json`.
    pub(super) fn parse(json: &str) -> Result<Self> {
        let report: DoctorReport = serde_json::from_str(json).context("doctor's output cannot be read")?;
        let findings = report.findings.iter().filter(|finding| SUBJECTS.contains(&&*finding.subject));
        // The detail of a good verdict has measured times, which vary.
        let detail = |finding: &Finding| if finding.verdict == "ok" { "" } else { &*finding.detail }.to_owned();
        let row = |finding: &Finding| (finding.subject.to_string(), (finding.verdict.to_string(), detail(finding)));
        let rows: BTreeMap<_, _> = findings.map(row).collect();
        match SUBJECTS.iter().find(|subject| !rows.contains_key(**subject)) {
            Some(missing) => bail!("doctor has no finding about {missing}"),
            None => Ok(Self(rows)),
        }
    }

    /// Saves the output of doctor for the table.
    pub(super) fn save(workspace: &Workspace, kernel: &Kernel, json: &str) -> Result<()> {
        let path = workspace.join("target/kernels").join(format!("{}.json", kernel.name));
        fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))
    }

    fn cell(&self, subject: &str) -> &'static str {
        match self.0.get(subject).map(|(verdict, _)| verdict.as_str()) {
            Some("ok") => "yes",
            Some("warn") => "in part",
            Some("fail") => "no",
            _ => "not tested",
        }
    }
}

/// Writes the table to the document.
pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    let mut columns = Vec::new();
    for kernel in supported::ALL.iter().filter(|kernel| kernel.config.is_none() && kernel.is_supported) {
        let path = workspace.join("target/kernels").join(format!("{}.json", kernel.name));
        let json = fs::read_to_string(&path).with_context(|| {
            format!("no features of Linux {} are saved: run cargo xtask test --kernels all", kernel.name)
        })?;
        columns.push((kernel.name, Features::parse(&json)?));
    }
    let path = workspace.join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (before, _, after) = split(&text)?;
    fs::write(&path, format!("{before}{BEGIN}\n\n{}\n{END}{after}", table(&columns)))
        .with_context(|| format!("cannot write {}", path.display()))?;
    ui::note(&format!("written: {}", path.display()));
    Ok(())
}

/// Returns the differences between the features of a kernel and the table in the document.
pub(super) fn compare(workspace: &Workspace, kernel: &Kernel, features: &Features) -> Result<Vec<String>> {
    let text = fs::read_to_string(workspace.join(DOCUMENT)).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let written = column(split(&text)?.1, kernel.name);
    let mut problems = Vec::new();
    for subject in features.0.keys() {
        let cell = features.cell(subject);
        if written.get(subject.as_str()) != Some(&cell) {
            problems.push(format!("{DOCUMENT} does not have {cell:?} for {subject}; run cargo xtask kernels table"));
        }
    }
    Ok(problems)
}

fn split(text: &str) -> Result<(&str, &str, &str)> {
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let (before, (table, after)) = parts.with_context(|| format!("{DOCUMENT} has no markers of the table"))?;
    Ok((before, table, after))
}

/// Returns a table with a row for each subject and a column for each kernel, and the details of verdicts that are not
/// good.
fn table(columns: &[(&str, Features)]) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut text = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for subject in SUBJECTS {
        let cells: Vec<&str> = columns.iter().map(|(_, features)| features.cell(subject)).collect();
        let _ = writeln!(text, "| {subject} | {} |", cells.join(" | "));
    }
    text.push('\n');
    for (name, features) in columns {
        for (subject, (_, detail)) in features.0.iter().filter(|(_, (_, detail))| !detail.is_empty()) {
            let _ = writeln!(text, "- Linux {name}, {subject}: {detail}");
        }
    }
    text
}

/// Returns the cells in the column of a kernel, by subject.
fn column<'table>(table: &'table str, kernel: &str) -> BTreeMap<&'table str, &'table str> {
    let rows = || table.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &'table str| line.trim_matches('|').split('|').map(str::trim);
    let Some(index) = rows().next().and_then(|head| cells(head).position(|name| name == kernel)) else {
        return BTreeMap::new();
    };
    rows().skip(2).filter_map(|row| Some((cells(row).next()?, cells(row).nth(index)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(half: &str) -> Features {
        let row = |subject: &&str| {
            let verdict = if *subject == "BPF programs" { half } else { "ok" };
            serde_json::json!({ "subject": subject, "verdict": verdict, "detail": "as it is" })
        };
        let rows: Vec<_> = SUBJECTS.iter().map(row).collect();
        let report = serde_json::json!({ "findings": rows, "schema_version": 1, "verdict": "ok" });
        Features::parse(&report.to_string()).unwrap()
    }

    #[test]
    fn table_of_features_is_parsed_again() {
        let written = table(&[("6.0", features("fail")), ("6.1", features("ok"))]);
        let expected = "\
| | 6.0 | 6.1 |
|---|---|---|
| type information | yes | yes |
| uprobes | yes | yes |
| ring buffers | yes | yes |
| BPF programs | no | yes |
| probes | yes | yes |
| control groups | yes | yes |
| perf mmap events | yes | yes |

- Linux 6.0, BPF programs: as it is
";
        assert_eq!(written, expected);
        assert_eq!(column(&written, "6.0")["BPF programs"], "no");
        assert_eq!(column(&written, "6.1")["BPF programs"], "yes");
        assert_eq!(column(&written, "6.2"), BTreeMap::new());
    }

    #[test]
    fn other_json_is_an_error() {
        assert!(Features::parse("no JSON").is_err());
        assert!(Features::parse(r#"{"findings": []}"#).is_err());
    }
}
