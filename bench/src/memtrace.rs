//! memtrace, run beside a target.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::child::{Child, Errors};

/// The exit code of a run that wrote its report and has lost something.
const LOST: i32 = 20;

/// memtrace, attached.
pub(crate) struct Memtrace {
    child: Child,
    report: PathBuf,
}

/// What of its report matters here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Report {
    pub(crate) totals: Totals,
    losses: BTreeMap<String, u64>,
    pub(crate) stacks: Vec<Stack>,
    processes: Vec<Process>,
    frames: Vec<Frame>,
}

/// The numbers of all.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Totals {
    pub(crate) alloc_count: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Process {
    comm: Option<String>,
}

/// A stack that allocated.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Stack {
    /// Whose it is, by its place among the report's processes.
    process: usize,
    /// How it ended.
    pub(crate) end: String,
    /// By their places among the report's.
    frames: Vec<usize>,
    pub(crate) alloc_count: u64,
    pub(crate) alloc_bytes: u64,
    /// How far those may be off, where they are estimated.
    pub(crate) alloc_error_bytes: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Frame {
    inlined: bool,
    name: Option<String>,
    object: Option<String>,
    offset: Option<u64>,
}

impl Report {
    /// Where in the programs `stack` is, whoever runs them.
    pub(crate) fn place_of(&self, stack: &Stack) -> String {
        let frame = |frame: &Frame| match (&frame.name, &frame.object) {
            (Some(name), _) => name.clone(),
            (None, object) => format!("{}+{:#x}", object.as_deref().unwrap_or("?"), frame.offset.unwrap_or(0)),
        };
        let frames = stack.frames.iter().filter_map(|&index| self.frames.get(index));
        frames.map(frame).collect::<Vec<_>>().join(";")
    }

    /// What the kernel calls the process whose `stack` is.
    pub(crate) fn process_of(&self, stack: &Stack) -> Option<&str> {
        self.processes.get(stack.process)?.comm.as_deref()
    }

    /// How many events were lost, for whatever reason.
    pub(crate) fn lost(&self) -> u64 {
        self.losses.values().sum()
    }

    /// How many events were lost, by what became of them.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        self.losses.iter().map(|(name, &count)| (name.as_str(), count))
    }

    /// How many frames most allocations' stack has.
    pub(crate) fn frames(&self) -> usize {
        self.stacks.iter().max_by_key(|stack| stack.alloc_count).map_or(0, |stack| self.frames_of(stack))
    }

    /// How many frames of `stack` were found; what the compiler put into its caller has none of its own.
    pub(crate) fn frames_of(&self, stack: &Stack) -> usize {
        let is_own = |&&index: &&usize| self.frames.get(index).is_some_and(|frame| !frame.inlined);
        stack.frames.iter().filter(is_own).count()
    }
}

impl Memtrace {
    /// Has `program` follow everybody, and waits until it does.
    pub(crate) fn everywhere(program: &Path, options: &[&str], report: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("-q").args(options).arg("-o").arg(report);
        let mut child = Child::start(&mut command, Errors::Read)?;
        child.wait_for_error("attached")?;
        Ok(Self { child, report: report.to_owned() })
    }

    /// Has it end, and waits for that.
    pub(crate) fn stop(self) -> Result<Report> {
        let pid = i32::try_from(self.pid()).context("a pid is a small number")?;
        // SAFETY: kill has no conditions; the child has not been waited for, so the pid is still its own.
        if unsafe { libc::kill(pid, libc::SIGTERM) } != 0 {
            bail!("memtrace cannot be told to end: {}", std::io::Error::last_os_error());
        }
        self.finish()
    }

    /// Has `program` attach to `pid`, and waits until every probe is in place.
    pub(crate) fn attach(program: &Path, pid: u32, options: &[&str], report: PathBuf) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["--pid", &pid.to_string(), "-q"]).args(options).arg("-o").arg(&report);
        let mut child = Child::start(&mut command, Errors::Read)?;
        child.wait_for_error("attached")?;
        Ok(Self { child, report })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Waits for its end, which is due when its target has ended.
    pub(crate) fn finish(mut self) -> Result<Report> {
        let (status, words) = self.child.wait()?;
        if !matches!(status.code(), Some(0 | LOST)) {
            bail!("memtrace ended with {status}{words}");
        }
        let text = fs::read(&self.report).with_context(|| format!("cannot read {}", self.report.display()))?;
        serde_json::from_slice(&text).context("memtrace's report cannot be read")
    }
}

/// Whether `program` has an option of that name.
pub(crate) fn has_option(program: &Path, option: &str) -> Result<bool> {
    let output = Command::new(program).arg("--help").output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == option))
}
