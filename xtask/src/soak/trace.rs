//! Runs memtrace as a child process, and measures its memory and processor time.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::memory::{self, Sample};
use super::report::Report;
use crate::privilege::Root;
use crate::{command, ui};

/// Time between two samples of the memory.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for attaching to the machine.
const ATTACH: Duration = Duration::from_secs(120);

/// Ticks per second of the times in `/proc/PID/stat` (`USER_HZ`, include/asm-generic/param.h).
const USER_HZ: f64 = 100.0;

/// Results of a run.
pub(super) struct Measured {
    pub(super) samples: Vec<Sample>,
    /// Processor time of memtrace.
    pub(super) cpu: Duration,
    /// Duration of the measurement.
    pub(super) traced: Duration,
    /// Time from the signal that ends the trace to the exit of memtrace.
    pub(super) report_time: Duration,
    pub(super) report: Report,
    /// Number of turns of all loops.
    pub(super) turns: u64,
}

/// Running memtrace. Dropping this value ends it.
pub(super) struct Trace {
    root: Root,
    child: Child,
    pid: String,
}

impl Trace {
    /// Starts memtrace and waits until it has attached.
    pub(super) fn start(root: Root, memtrace: &Path, folder: &Path, arguments: &[String]) -> Result<Self> {
        let (pid_file, log) = (folder.join("pid"), folder.join("memtrace.log"));
        let mut command = root.command("sh");
        // With sudo, the pid of the child is the pid of sudo. So the shell writes its own pid, which exec keeps.
        command.args(["-c", r#"echo $$ > "$0" && exec "$@""#]).arg(&pid_file).arg(memtrace).arg("--all");
        command.arg("-o").arg(folder.join("report.json")).arg("-o").arg(folder.join("report.svg")).args(arguments);
        ui::note(&command::shown(&command));
        let stderr = fs::File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().context("cannot run memtrace")?;
        let text = || fs::read_to_string(&log).unwrap_or_default();
        let is_attached = || Ok(text().lines().any(|line| line.starts_with("attached")));
        if !command::waits_until(&mut child, ATTACH, is_attached).context("cannot wait for memtrace")? {
            bail!("memtrace did not attach: {}", text());
        }
        let pid = fs::read_to_string(&pid_file).context("cannot read the pid of memtrace")?.trim().to_owned();
        Ok(Self { root, child, pid })
    }

    fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid)).context("memtrace has ended")
    }

    /// Samples memtrace's memory until `end`.
    pub(super) fn sample(&mut self, end: Instant) -> Result<Vec<Sample>> {
        let start = Instant::now();
        let mut samples = Vec::new();
        let mut next = start;
        while next <= end {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            samples.push(Sample { at: start.elapsed(), rss: memory::rss(&self.read("status")?)? });
            next += INTERVAL;
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
        Ok(samples)
    }

    /// Returns the processor time of all threads of memtrace so far.
    pub(super) fn processor_time(&self) -> Result<Duration> {
        parse_processor_time(&self.read("stat")?)
    }

    /// Ends the trace and waits for its reports. Returns the time from the signal to the exit.
    pub(super) fn stop(mut self) -> Result<Duration> {
        let start = Instant::now();
        self.signal()?;
        let status = self.child.wait().context("cannot wait for memtrace")?;
        // Exit code 20 means that events were lost. The losses are compared with their limit.
        if !matches!(status.code(), Some(0 | 20)) {
            bail!("memtrace failed with {status}");
        }
        Ok(start.elapsed())
    }

    fn signal(&self) -> Result<()> {
        command::run(self.root.command("kill").args(["-INT", &self.pid]))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // The pid still belongs to memtrace, because the child has not been waited for.
        if matches!(self.child.try_wait(), Ok(None)) && self.signal().is_ok() {
            let _ = self.child.wait();
        }
    }
}

/// Returns user and system time from the content of `/proc/PID/stat` (proc_pid_stat(5)).
fn parse_processor_time(stat: &str) -> Result<Duration> {
    let (_, after_name) = stat.rsplit_once(')').context("the name is not in parentheses")?;
    // Fields count from 1, and the first one after the name is field 3.
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let field = |number: usize| -> Result<u64> {
        fields.get(number - 3).context("a field is missing")?.parse().context("a field is not a number")
    };
    Ok(Duration::from_secs_f64((field(14)? + field(15)?) as f64 / USER_HZ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_user_and_system() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 9 0 0 0 150 50 7 8 20 0 3 0 1";
        assert_eq!(parse_processor_time(stat).unwrap(), Duration::from_secs(2));
        assert!(parse_processor_time("42 (a) S 1").is_err());
    }
}
