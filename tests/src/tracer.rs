//! Runs memtrace.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::Outcome;
use crate::process::{self, Process};
use crate::scratch::Scratch;
use crate::{Victim, lane, root, victim};

/// Default of `--memory-limit` for `--all`, in bytes.
pub const DEFAULT_MEMORY_LIMIT: u64 = 256 << 20;

/// Memory in bytes that a report may take at the end in addition to the limit (`REPORT`, memtrace/src/trace/memory.rs).
pub const REPORT_MEMORY: u64 = 8 << 20;

/// Number of the system call that waits for events in memtrace. Only x86-64 has `epoll_wait`.
#[cfg(target_arch = "x86_64")]
const EPOLL_WAIT: i64 = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
const EPOLL_WAIT: i64 = libc::SYS_epoll_pwait;

/// Returns the path of the memtrace under test: `MEMTRACE_BIN`, or the executable that cargo built with the tests.
#[must_use]
pub fn binary() -> PathBuf {
    let path = env::var_os("MEMTRACE_BIN").map_or_else(|| victim::binaries().join("memtrace"), PathBuf::from);
    assert!(path.exists(), "there is no {}: run `cargo xtask test`, or set MEMTRACE_BIN", path.display());
    path
}

/// Command line and environment of a trace.
pub struct Trace {
    scratch: Scratch,
    binary: PathBuf,
    /// Formats of the reports.
    formats: &'static [&'static str],
    wrapper: Vec<OsString>,
    options: Vec<OsString>,
    command: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    /// True if a trace with a selection waits for its first process: most tests start processes after memtrace has attached.
    waits: bool,
}

impl Trace {
    /// Traces running processes.
    #[must_use]
    pub fn pids(pids: &[u32]) -> Self {
        let mut trace = Self::new();
        for pid in pids {
            trace = trace.option("--pid").option(pid.to_string());
        }
        trace
    }

    /// Traces a running victim.
    #[must_use]
    pub fn victim(victim: &Victim) -> Self {
        Self::pids(&[victim.pid()])
    }

    /// Traces all processes that pass the filters in the options.
    #[must_use]
    pub fn system_wide() -> Self {
        Self::new().option("--all")
    }

    /// Traces a command that memtrace starts.
    #[must_use]
    pub fn command<I: IntoIterator<Item: AsRef<OsStr>>>(command: I) -> Self {
        let mut trace = Self::new();
        trace.command = command.into_iter().map(|word| word.as_ref().to_owned()).collect();
        trace
    }

    fn new() -> Self {
        root::require();
        Self {
            scratch: Scratch::new(),
            binary: binary(),
            formats: &["json", "folded"],
            wrapper: Vec::new(),
            options: Vec::new(),
            command: Vec::new(),
            environment: Vec::new(),
            waits: true,
        }
    }

    /// Makes memtrace refuse a selection that no running process matches.
    #[must_use]
    pub const fn without_waiting(mut self) -> Self {
        self.waits = false;
        self
    }

    /// Makes the trace run `memtrace accounts`.
    #[must_use]
    pub fn accounts(mut self) -> Self {
        self.options.insert(0, "accounts".into());
        self.formats = &["json"];
        self
    }

    #[must_use]
    pub fn option(mut self, option: impl AsRef<OsStr>) -> Self {
        self.options.push(option.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn options(self, options: &[&str]) -> Self {
        options.iter().fold(self, Self::option)
    }

    /// Replaces the executable under test.
    #[must_use]
    pub fn binary(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.binary);
        self
    }

    /// Starts memtrace through a wrapper such as `setpriv`.
    #[must_use]
    pub fn wrapped_in(mut self, command: &[&str]) -> Self {
        self.wrapper = command.iter().map(OsString::from).collect();
        self
    }

    #[must_use]
    pub fn environment(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Returns true if the trace selects processes of the whole machine.
    fn is_system_wide(&self) -> bool {
        self.has_option(&["--all"]) || self.selects()
    }

    /// Returns true if the trace selects processes by their properties.
    fn selects(&self) -> bool {
        self.has_option(&["--comm", "--exe", "--user", "--cgroup"])
    }

    fn has_option(&self, any: &[&str]) -> bool {
        self.options.iter().any(|option| any.iter().any(|one| option == one))
    }

    fn spawn(self) -> Tracer {
        if self.is_system_wide() {
            lane::require_whole_machine();
        }
        let waits = self.waits && self.selects();
        let Self { scratch, binary, formats, wrapper, options, command, environment, .. } = self;
        let mut words = wrapper;
        words.push(binary.into_os_string());
        words.extend(options);
        words.extend(waits.then(|| "--wait".into()));
        for format in formats {
            words.extend(["-o".into(), scratch.join(format!("out.{format}")).into_os_string()]);
        }
        if !command.is_empty() {
            words.push("--".into());
            words.extend(command);
        }
        let mut command = Command::new(&words[0]);
        // A test must not download debug files, even if the developer's environment allows it.
        command.args(&words[1..]).env_remove("DEBUGINFOD_URLS").envs(environment);
        let process = Process::start(&mut command);
        Tracer { process, scratch }
    }

    /// Starts memtrace and waits until it has attached.
    #[must_use]
    pub fn start(self) -> Tracer {
        let mut tracer = self.spawn();
        if !tracer.process.wait_for_stderr_line("attached") {
            let status = tracer.process.wait();
            panic!("memtrace did not attach ({status}): {}", tracer.process.remaining_stderr());
        }
        tracer
    }

    /// Starts memtrace and returns at once.
    #[must_use]
    pub fn start_without_waiting(self) -> Tracer {
        self.spawn()
    }

    /// Starts memtrace and waits until it exits by itself.
    #[must_use]
    pub fn run(self) -> Outcome {
        self.spawn().wait()
    }
}

/// A running memtrace.
pub struct Tracer {
    process: Process,
    scratch: Scratch,
}

impl Tracer {
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the high-water mark of the RSS of memtrace so far, in bytes (`VmHWM`, proc_pid_status(5)).
    #[must_use]
    pub fn peak_rss(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid())).expect("memtrace runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("memtrace has memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("the RSS is a number") * 1024
    }

    /// Waits until the BPF programs have the unwind table of `object`. The trace must have the option `-vv`.
    pub fn wait_for_table(&mut self, object: &Path) {
        let line = format!("memtrace: debug: {} is ", object.display());
        assert!(self.process.wait_for_stderr_line(&line), "memtrace exited without a table of {}", object.display());
        // memtrace logs the table before it writes it to the BPF maps. It has finished when it waits for events again.
        self.wait_until_idle();
    }

    /// Waits until memtrace has probed an allocator of one of these processes. The trace must have the option `-vv`.
    pub fn wait_for_probes(&mut self, pids: &[u32]) {
        let lines: Vec<_> = pids.iter().map(|pid| format!("memtrace: debug: process {pid}: malloc ")).collect();
        let is_probe = |line: &str| lines.iter().any(|start| line.starts_with(start));
        assert!(self.process.wait_for_stderr(is_probe), "memtrace exited without probes for {pids:?}");
        // memtrace logs the functions before it attaches the probes.
        self.wait_until_idle();
    }

    fn wait_until_idle(&self) {
        let waiting = format!("{EPOLL_WAIT} ");
        process::wait_for_file(self.process.pid(), "syscall", |call| call.starts_with(&waiting), "wait for events");
    }

    /// Stops memtrace until [`Self::resume`]. Only its BPF programs run.
    pub fn suspend(&self) {
        self.process.signal(libc::SIGSTOP);
        process::wait_for_file(self.process.pid(), "stat", |stat| stat.contains(") T "), "stop");
    }

    pub fn resume(&self) {
        self.process.signal(libc::SIGCONT);
    }

    /// Ends the trace as Ctrl-C does, and waits until memtrace exits.
    #[must_use]
    pub fn stop(self) -> Outcome {
        self.stop_by(libc::SIGINT)
    }

    /// Ends the trace by `signal`, and waits until memtrace exits.
    #[must_use]
    pub fn stop_by(self, signal: i32) -> Outcome {
        self.process.signal(signal);
        self.wait()
    }

    /// Waits until memtrace exits by itself.
    #[must_use]
    pub fn wait(mut self) -> Outcome {
        let status = self.process.wait_with_open_stdin();
        let stderr = self.process.remaining_stderr();
        let stdout = self.process.remaining_stdout();
        Outcome { code: status.code(), stderr, stdout, scratch: self.scratch }
    }
}
