//! `memtrace doctor`: its options, and its output as text and as JSON.

use std::io;

use clap::Args;
use memtrace_json::{self as schema, Diagnosis, SCHEMA_VERSION};
use memtrace_model::{Pid, columns_of, padded};

use super::console::{self, Style, paint};
use super::exit::{self, Exit};
use crate::doctor::{Finding, Verdict};
use crate::options::HelpFlag;
use crate::options::units;
use crate::run_kit::privileges;

/// Options of `memtrace doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Examine this process too
    #[arg(short, long, value_name = "PID", value_parser = units::pid)]
    pid: Option<Pid>,

    /// Write JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    help: HelpFlag,
}

/// Examines the machine, and returns the output and the exit code.
pub(super) fn run(args: &DoctorArgs) -> (String, Exit) {
    privileges::keep_for_tracing();
    // Some checks read procfs files of memtrace itself. If memtrace is not dumpable, these files belong to root.
    let findings = crate::doctor::examine(args.pid);
    privileges::forbid_dumps();
    let text = if args.json { json(&findings) } else { text(&findings, console::wants_colour(&io::stdout())) };
    (text, exit::of_findings(&findings))
}

/// Formats each finding as a line. If a finding has a remedy, a second line shows the remedy.
fn text(findings: &[Finding], colour: bool) -> String {
    let width = findings.iter().map(|finding| columns_of(&finding.subject)).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { subject, verdict, detail, remedy, .. } in findings {
        let style = match verdict {
            Verdict::Ok => Style::Good,
            Verdict::Info => Style::Faint,
            Verdict::Warn => Style::Doubtful,
            Verdict::Fail => Style::Bad,
        };
        let name = paint(&format!("{:<4}", verdict.name()), style, colour);
        text += &format!("{name}  {}  {detail}\n", padded(subject, width));
        if let Some(remedy) = remedy {
            text += &format!("      {:width$}  {} {remedy}\n", "", paint("remedy:", Style::Good, colour));
        }
    }
    text
}

/// Formats a JSON object with the worst verdict and all findings, in the same order as [`text`].
fn json(findings: &[Finding]) -> String {
    let verdicts = findings.iter().map(|finding| finding.verdict).filter(|verdict| *verdict != Verdict::Info);
    let worst = verdicts.max().unwrap_or(Verdict::Ok);
    let findings = findings.iter().map(|Finding { subject, verdict, detail, remedy, .. }| schema::Finding {
        detail: detail.into(),
        remedy: remedy.as_ref().map(Into::into),
        subject: subject.as_str().into(),
        verdict: verdict.name().into(),
    });
    let findings = findings.collect();
    let diagnosis = Diagnosis { findings, schema_version: SCHEMA_VERSION, verdict: worst.name().into() };
    serde_json::to_string_pretty(&diagnosis).expect("strings and numbers are JSON") + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::Area;

    fn findings() -> Vec<Finding> {
        let finding = |subject: &str, verdict, detail: &str, remedy: Option<&str>| Finding {
            area: Area::Kernel,
            subject: subject.into(),
            verdict,
            detail: detail.into(),
            remedy: remedy.map(str::to_owned),
        };
        vec![
            finding("ring buffers", Verdict::Ok, "Linux 6.1", None),
            finding("uprobes", Verdict::Fail, "\"none\"", Some("boot another kernel")),
        ]
    }

    #[test]
    fn text_has_a_line_for_each_finding_and_remedy() {
        assert_eq!(
            text(&findings(), false),
            "ok    ring buffers  Linux 6.1\n\
             fail  uprobes       \"none\"\n\
             \x20                   remedy: boot another kernel\n"
        );
        assert!(text(&findings(), true).starts_with("\x1b[32mok  \x1b[0m  ring buffers  Linux 6.1\n"));
        assert_eq!(text(&[], false), "");
    }

    #[test]
    fn json_has_all_findings_and_the_worst_verdict() {
        let expected = json!({
            "schema_version": 1,
            "verdict": "fail",
            "findings": [
                { "subject": "ring buffers", "verdict": "ok", "detail": "Linux 6.1", "remedy": null },
                { "subject": "uprobes", "verdict": "fail", "detail": "\"none\"", "remedy": "boot another kernel" },
            ],
        });
        let read: serde_json::Value = serde_json::from_str(&json(&findings())).expect("JSON");
        assert_eq!(read, expected);
    }
}
