//! Runs of `memtrace threads`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use memtrace_json::ThreadUsage;

use crate::process::Process;
use crate::{Victim, root, tracer};

/// An interval as JSON.
pub type Interval = memtrace_json::Interval<'static>;

pub type MonitoredProcess = memtrace_json::MonitoredProcess<'static>;

/// Returns the number of threads of a process that ended in its interval.
#[must_use]
pub fn ended_threads(process: &MonitoredProcess) -> u64 {
    process.ended.count + process.threads.iter().filter(|thread| thread.ended).count() as u64
}

/// Sums of counters by name; `None` for a counter that the source lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage(BTreeMap<String, Option<u64>>);

impl Usage {
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().flatten().unwrap_or(0)
    }

    fn add(&mut self, other: &ThreadUsage<'_>) {
        for (name, value) in &other.0 {
            let sum = self.0.entry(name.to_string()).or_insert(Some(0));
            *sum = sum.zip(*value).map(|(sum, value)| sum + value);
        }
    }

    /// Returns the allocated bytes and blocks, and the freed bytes and blocks.
    #[must_use]
    pub fn heap(&self) -> [u64; 4] {
        ["alloc_bytes", "alloc_count", "free_bytes", "free_count"].map(|name| self.get(name))
    }
}

impl From<&ThreadUsage<'_>> for Usage {
    fn from(usage: &ThreadUsage<'_>) -> Self {
        let mut sum = Self::default();
        sum.add(usage);
        sum
    }
}

/// A running `memtrace threads --format json`.
pub struct ThreadsRun {
    process: Process,
}

/// A monitor that has ended.
pub struct ThreadsOutcome {
    pub code: Option<i32>,
    pub stderr: String,
    pub intervals: Vec<Interval>,
}

impl ThreadsRun {
    /// Monitors a victim with these options, and waits until memtrace has attached.
    #[must_use]
    pub fn victim(victim: &Victim, options: &[&str]) -> Self {
        let pid = victim.pid().to_string();
        Self::start(&[&["--pid", &pid], options].concat())
    }

    /// Starts a monitor with these options, and waits until memtrace has attached.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        root::require();
        let mut command = Command::new(tracer::binary());
        command.args(["threads", "--format", "json"]).args(options).env_remove("DEBUGINFOD_URLS");
        let mut process = Process::start(&mut command);
        assert!(process.wait_for_stderr_line("attached "), "memtrace exited: {}", process.remaining_stderr());
        Self { process }
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Waits for the next interval.
    #[must_use]
    pub fn next_interval(&mut self) -> Interval {
        parse(&self.process.read_line())
    }

    /// Ends the monitor as Ctrl-C does.
    #[must_use]
    pub fn stop(self) -> ThreadsOutcome {
        self.process.signal(libc::SIGINT);
        self.wait()
    }

    /// Waits until the monitor exits. The result includes the intervals that [`Self::next_interval`] has returned.
    #[must_use]
    pub fn wait(mut self) -> ThreadsOutcome {
        let status = self.process.wait_with_open_stdin();
        let intervals = self.process.remaining_stdout().lines().map(parse).collect();
        ThreadsOutcome { code: status.code(), stderr: self.process.remaining_stderr(), intervals }
    }
}

fn parse(line: &str) -> Interval {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

impl ThreadsOutcome {
    /// Returns the sums of the counters of each thread of process `pid`, and of the whole process.
    #[must_use]
    pub fn sums(&self, pid: u32) -> (BTreeMap<u32, Usage>, Usage) {
        let mut threads: BTreeMap<u32, Usage> = BTreeMap::new();
        let mut all = Usage::default();
        for process in self.processes(pid) {
            all.add(&process.usage);
            for thread in &process.threads {
                threads.entry(thread.tid).or_default().add(&thread.usage);
            }
        }
        (threads, all)
    }

    /// Returns the entries of a process in all intervals.
    pub fn processes(&self, pid: u32) -> impl Iterator<Item = &MonitoredProcess> {
        self.intervals.iter().flat_map(|interval| &interval.processes).filter(move |process| process.pid == pid)
    }

    /// Asserts that no interval is longer than twice `interval`, and that each interval starts at the end of the
    /// interval before it.
    pub fn assert_continuous(&self, interval: Duration) {
        for pair in self.intervals.windows(2) {
            assert!((pair[0].to_s - pair[1].from_s).abs() < 1e-6, "a gap after {} s", pair[0].to_s);
        }
        let longest = self.intervals.iter().map(|interval| interval.to_s - interval.from_s).fold(0.0, f64::max);
        assert!(longest <= 2.0 * interval.as_secs_f64(), "an interval of {longest} s");
    }
}

/// Returns the path of a new recording in `directory`.
#[must_use]
pub fn recording_in(directory: &crate::Scratch) -> PathBuf {
    directory.join("threads.memtrace")
}
