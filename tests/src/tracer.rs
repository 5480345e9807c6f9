//! memtrace, run beside a victim.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::process::{PATIENCE, Process};
use crate::root;
use crate::scratch::Scratch;
use crate::{Victim, victim};

/// The number of `epoll_wait` on x86-64, as `/proc/PID/syscall` has it (arch/x86/entry/syscalls/syscall_64.tbl).
const EPOLL_WAIT: &str = "232 ";

/// The memtrace that is tested: `MEMTRACE_BIN`, or the one that cargo built beside the tests.
///
/// # Panics
///
/// If it isn't there.
#[must_use]
pub fn binary() -> PathBuf {
    let path = env::var_os("MEMTRACE_BIN").map_or_else(|| victim::binaries().join("memtrace"), PathBuf::from);
    assert!(path.exists(), "there is no {}: run `cargo xtask test`, or set MEMTRACE_BIN", path.display());
    path
}

/// A trace to be started.
pub struct Trace {
    scratch: Scratch,
    binary: PathBuf,
    before: Vec<OsString>,
    options: Vec<OsString>,
    command: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Trace {
    /// A trace of running processes.
    ///
    /// # Panics
    ///
    /// Without root.
    #[must_use]
    pub fn of_pids(pids: &[u32]) -> Self {
        let mut trace = Self::new();
        for pid in pids {
            trace = trace.option("--pid").option(pid.to_string());
        }
        trace
    }

    /// A trace of one running victim.
    ///
    /// # Panics
    ///
    /// Without root.
    #[must_use]
    pub fn of(victim: &Victim) -> Self {
        Self::of_pids(&[victim.pid()])
    }

    /// A trace of all processes; options choose among them.
    ///
    /// # Panics
    ///
    /// Without root.
    #[must_use]
    pub fn of_all() -> Self {
        Self::new()
    }

    /// A trace of a command that memtrace starts.
    ///
    /// # Panics
    ///
    /// Without root.
    #[must_use]
    pub fn of_command<I: IntoIterator<Item: AsRef<OsStr>>>(command: I) -> Self {
        let mut trace = Self::new();
        trace.command = command.into_iter().map(|word| word.as_ref().to_owned()).collect();
        trace
    }

    fn new() -> Self {
        root::required();
        Self {
            scratch: Scratch::new(),
            binary: binary(),
            before: Vec::new(),
            options: Vec::new(),
            command: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// One more word for memtrace's command line.
    #[must_use]
    pub fn option(mut self, option: impl AsRef<OsStr>) -> Self {
        self.options.push(option.as_ref().to_owned());
        self
    }

    /// More words for memtrace's command line.
    #[must_use]
    pub fn options(self, options: &[&str]) -> Self {
        options.iter().fold(self, Self::option)
    }

    /// Another copy of memtrace.
    #[must_use]
    pub fn binary(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.binary);
        self
    }

    /// A command before memtrace that runs it, as `setpriv` does.
    #[must_use]
    pub fn through(mut self, command: &[&str]) -> Self {
        self.before = command.iter().map(OsString::from).collect();
        self
    }

    /// One more variable in memtrace's environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    fn spawn(self) -> Tracer {
        let Self { scratch, binary, before, options, command, environment } = self;
        let mut words = before;
        words.push(binary.into_os_string());
        words.extend(options);
        for format in ["json", "folded"] {
            words.extend(["-o".into(), scratch.join(format!("out.{format}")).into_os_string()]);
        }
        if !command.is_empty() {
            words.push("--".into());
            words.extend(command);
        }
        let process = Process::start(Command::new(&words[0]).args(&words[1..]).envs(environment));
        Tracer { process, scratch }
    }

    /// Starts it and waits until every probe is in place.
    ///
    /// # Panics
    ///
    /// If it doesn't attach.
    #[must_use]
    pub fn start(self) -> Tracer {
        let mut tracer = self.spawn();
        if !tracer.process.wait_for_error_line("attached") {
            let status = tracer.process.wait();
            panic!("memtrace did not attach ({status}): {}", tracer.process.rest_of_errors());
        }
        tracer
    }

    /// Starts it without waiting for anything.
    #[must_use]
    pub fn start_without_waiting(self) -> Tracer {
        self.spawn()
    }

    /// Starts it and waits until it has ended by itself.
    ///
    /// # Panics
    ///
    /// If it doesn't end.
    #[must_use]
    pub fn run(self) -> Outcome {
        self.spawn().wait()
    }
}

/// A trace that runs.
pub struct Tracer {
    process: Process,
    scratch: Scratch,
}

impl Tracer {
    /// The process behind it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Waits until it has the unwind table of `object`, in a trace with `-vv`.
    ///
    /// # Panics
    ///
    /// If it doesn't come by one.
    pub fn wait_for_table(&mut self, object: &Path) {
        let line = format!("memtrace: debug: {} is ", object.display());
        assert!(self.process.wait_for_error_line(&line), "memtrace ended without a table of {}", object.display());
        // What is logged has yet to be told to the kernel. That is done when it waits for something else.
        let path = format!("/proc/{}/syscall", self.process.pid());
        let until = Instant::now() + PATIENCE;
        while !fs::read_to_string(&path).expect("memtrace runs, and we are root").starts_with(EPOLL_WAIT) {
            assert!(Instant::now() < until, "memtrace does not come to rest");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it as Ctrl-C does, and waits for its reports.
    ///
    /// # Panics
    ///
    /// If it doesn't end.
    #[must_use]
    pub fn stop(self) -> Outcome {
        self.stop_by(libc::SIGINT)
    }

    /// Ends it by `signal`, and waits for its reports.
    ///
    /// # Panics
    ///
    /// If it doesn't end.
    #[must_use]
    pub fn stop_by(self, signal: i32) -> Outcome {
        self.process.signal(signal);
        self.wait()
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    ///
    /// If it doesn't end.
    #[must_use]
    pub fn wait(mut self) -> Outcome {
        let status = self.process.wait_with_open_input();
        let errors = self.process.rest_of_errors();
        let output = self.process.rest_of_output();
        Outcome { code: status.code(), errors, output, scratch: self.scratch }
    }
}
