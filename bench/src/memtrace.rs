//! Runs memtrace as a tracer of the benchmarks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use harness::{Process, Report};

use crate::children::start_tracer;

/// Exit code of a run that wrote its report but lost events.
const EVENTS_LOST: i32 = 20;

/// Attached memtrace.
pub(crate) struct Memtrace {
    process: Process,
    report: PathBuf,
}

impl Memtrace {
    /// Attaches `program` to process `pid`, and waits until all probes are attached.
    pub(crate) fn attach(program: &Path, pid: u32, options: &[&str], report: PathBuf) -> Result<Self> {
        Self::start(Command::new(program).args(["--pid", &pid.to_string()]), options, report)
    }

    /// Traces all processes, and waits until all probes are attached.
    pub(crate) fn trace_system(program: &Path, options: &[&str], report: PathBuf) -> Result<Self> {
        Self::start(Command::new(program).arg("--all"), options, report)
    }

    fn start(command: &mut Command, options: &[&str], report: PathBuf) -> Result<Self> {
        let mut process = start_tracer(command.arg("-q").args(options).arg("-o").arg(&report));
        if !process.wait_for_stderr_line("attached") {
            bail!("memtrace did not attach: {}", process.remaining_stderr());
        }
        Ok(Self { process, report })
    }

    /// Reads `report` at the end. A trace of several event classes writes a report of each class.
    pub(crate) fn with_report(self, report: PathBuf) -> Self {
        Self { report, ..self }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends the trace, and returns the report.
    pub(crate) fn stop(self) -> Result<Report> {
        self.process.signal(libc::SIGTERM);
        self.finish()
    }

    /// Waits until memtrace exits, and returns the report. memtrace exits after its target has exited.
    pub(crate) fn finish(mut self) -> Result<Report> {
        let status = self.process.wait();
        if !matches!(status.code(), Some(0 | EVENTS_LOST)) {
            bail!("memtrace ended with {status}: {}", self.process.remaining_stderr());
        }
        let text =
            fs::read_to_string(&self.report).with_context(|| format!("cannot read {}", self.report.display()))?;
        Report::read(&text).context("cannot parse memtrace's report")
    }
}

/// Attached `memtrace threads`.
pub(crate) struct ThreadsCommand(Process);

impl ThreadsCommand {
    /// Attaches `program` to process `pid`, and waits until all probes are attached. memtrace reads the counters only
    /// every 10 s, so that the reads cost little.
    pub(crate) fn attach(program: &Path, pid: u32) -> Result<Self> {
        let pid = pid.to_string();
        let mut command = Command::new(program);
        command.args(["threads", "-q", "--pid", &pid, "--source", "bpf", "--interval", "10s", "--format", "json"]);
        let mut process = start_tracer(&mut command);
        if !process.wait_for_stderr_line("attached") {
            bail!("memtrace threads did not attach: {}", process.remaining_stderr());
        }
        Ok(Self(process))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Waits until memtrace exits, which happens after its target has exited.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.0.wait();
        if !status.success() {
            bail!("memtrace threads ended with {status}: {}", self.0.remaining_stderr());
        }
        Ok(())
    }
}

/// Returns true if the help text of `program` contains this option.
pub(crate) fn has_option(program: &Path, option: &str) -> Result<bool> {
    let output = Command::new(program).arg("--help").output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == option))
}
