//! Traces of single processes that triggers start in another memtrace process.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use memtrace_history::triggers::{TraceBudget, TraceRefusal};
use memtrace_host::procfs;
use memtrace_model::{Pid, printable};

use super::config::TriggeredTrace;
use crate::run_kit::error::Error;

/// Starts the traces of triggers, and waits for their ends.
pub(super) struct TriggeredTraces {
    config: TriggeredTrace,
    budget: TraceBudget,
    running: Option<(Child, PathBuf)>,
    /// Number of traces so far.
    count: u64,
}

impl TriggeredTraces {
    /// Creates the directory of the traces.
    pub(super) fn create(config: TriggeredTrace) -> Result<Self, Error> {
        std::fs::create_dir_all(&config.directory)
            .map_err(|source| Error::Output { path: config.directory.clone(), source })?;
        Ok(Self { config, budget: TraceBudget::default(), running: None, count: 0 })
    }

    /// Starts a trace of `pid`. Returns a line for the user. `at`: time of the trigger.
    pub(super) fn start(&mut self, pid: Option<Pid>, at: Duration) -> String {
        let Some(pid) = pid else { return String::from("no trace: the condition is not about a process") };
        if let Err(refusal) = self.budget.start(at) {
            return format!("no trace: {}", refusal.explanation());
        }
        self.count += 1;
        let stem = format!("trigger-{}-{:.0}s-pid{pid}", self.count, at.as_secs_f64());
        let file = |extension: &str| self.config.directory.join(format!("{stem}.{extension}"));
        let svg = file("svg");
        let mut command = Command::new(procfs::own_program());
        command.args(["-q", "--pid", &pid.to_string(), "-d", &format!("{}ms", self.config.duration.as_millis())]);
        command.args(&self.config.options);
        for extension in ["svg", "json", "folded"] {
            command.arg("-o").arg(file(extension));
        }
        // Only the monitor sends messages to the service manager.
        ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"].iter().for_each(|name| _ = command.env_remove(name));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => {
                let line = format!("tracing process {pid} into {}", printable(&svg));
                self.running = Some((child, svg));
                line
            }
            Err(error) => {
                self.budget.finish();
                format!("no trace: memtrace cannot be started: {error}")
            }
        }
    }

    /// Returns a line for the user if a trace has ended.
    pub(super) fn poll(&mut self) -> Option<String> {
        let (child, path) = self.running.as_mut()?;
        let status = child.try_wait();
        let line = match status {
            Ok(None) => return None,
            // Exit code 20: the report is written and lists losses.
            Ok(Some(status)) if matches!(status.code(), Some(0 | 20)) => format!("wrote {}", printable(path)),
            Ok(Some(status)) => format!("the trace into {} has failed: {status}", printable(path)),
            Err(error) => format!("cannot wait for a trace: {error}"),
        };
        self.running = None;
        self.budget.finish();
        Some(line)
    }

    /// Waits for the running trace. Returns the number of traces that were not started, by reason.
    pub(super) fn finish(mut self) -> Vec<(TraceRefusal, u64)> {
        if let Some((child, _)) = &mut self.running {
            // The trace ends after its duration.
            let _ = child.wait();
        }
        let refused = TraceRefusal::ALL.map(|reason| (reason, self.budget.refused(reason)));
        refused.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}
