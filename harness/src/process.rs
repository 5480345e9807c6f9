//! A child process whose output is read line by line, and for which nothing waits for ever.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The output of a command that must succeed.
///
/// # Panics
///
/// If it doesn't, or writes no text.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it writes text")
}

/// The page faults of a process that is there, the minor and the major ones, as the kernel counts them (proc_pid_stat(5)).
///
/// # Panics
///
/// If the process doesn't run.
#[must_use]
pub fn page_faults(pid: u32) -> [u64; 2] {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, behind) = stat.rsplit_once(')').expect("the name is in parentheses");
    // They are counted from 1, and behind the name is the third.
    let fields: Vec<&str> = behind.split_whitespace().collect();
    [10, 12].map(|field| fields[field - 3].parse().expect("a number"))
}

/// Waits until the process waits for its standard input.
///
/// # Panics
///
/// If it doesn't come there.
pub fn wait_until_it_reads(pid: u32) {
    let path = format!("/proc/{pid}/syscall");
    let until = Instant::now() + PATIENCE;
    // The system call's number, then its first argument: read is 0 on x86-64, and so is standard input.
    while !fs::read_to_string(&path).expect("the process runs, and we are root").starts_with("0 0x0 ") {
        assert!(Instant::now() < until, "the process does not come to its barrier");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A running child, killed when it is dropped.
pub struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Lines,
    errors: Lines,
}

/// Lines as they come, and those that came.
struct Lines {
    receiver: Receiver<String>,
    seen: Vec<String>,
}

impl Lines {
    fn of(source: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut source = BufReader::new(source);
            let mut line = Vec::new();
            while source.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                if sender.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Self { receiver, seen: Vec::new() }
    }

    /// The next line; `None` at the end.
    fn next(&mut self, until: Instant) -> Result<Option<&str>, RecvTimeoutError> {
        match self.receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.seen.push(line);
                Ok(self.seen.last().map(String::as_str))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(timeout) => Err(timeout),
        }
    }
}

impl Process {
    /// Starts `command` with all three streams in our hands.
    ///
    /// # Panics
    ///
    /// If it can't be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let output = Lines::of(child.stdout.take().expect("standard output is piped"));
        let errors = Lines::of(child.stderr.take().expect("standard error is piped"));
        Self { name, input: child.stdin.take(), output, errors, child }
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes one line to its standard input.
    ///
    /// # Panics
    ///
    /// If it no longer reads.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its standard input is open");
        let told = input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n"));
        told.unwrap_or_else(|error| panic!("{} does not listen: {error}", self.name));
    }

    /// The next line of its standard output.
    ///
    /// # Panics
    ///
    /// If none comes in time or its output has ended.
    pub fn line(&mut self) -> String {
        match self.output.next(Instant::now() + PATIENCE) {
            Ok(Some(line)) => line.to_owned(),
            Ok(None) => {
                let errors = self.rest_of_errors();
                panic!("{} ended its output; on standard error: {errors}", self.name)
            }
            Err(_) => panic!("{} said nothing for {PATIENCE:?}; on standard error: {:#?}", self.name, self.errors.seen),
        }
    }

    /// Waits for a line on standard error that begins with `beginning`; false if standard error ends without one.
    ///
    /// # Panics
    ///
    /// If neither comes in time.
    pub fn wait_for_error_line(&mut self, beginning: &str) -> bool {
        self.wait_for_error(|line| line.starts_with(beginning))
    }

    /// Waits for a line on standard error that is as `is_it` says; false if standard error ends without one.
    ///
    /// # Panics
    ///
    /// If neither comes in time.
    pub fn wait_for_error(&mut self, is_it: impl Fn(&str) -> bool) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.errors.next(until) {
                Ok(Some(line)) if is_it(line) => return true,
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => {
                    panic!("{} did not say what it should in {PATIENCE:?}, but {:#?}", self.name, self.errors.seen)
                }
            }
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    ///
    /// If the process is no longer there to be signalled.
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.pid()).expect("a pid fits");
        // SAFETY: kill has no conditions; the child is not reaped before `wait`, so the pid is still its own.
        let result = unsafe { libc::kill(pid, signal) };
        assert_eq!(result, 0, "{} cannot be signalled", self.name);
    }

    /// Closes its standard input and waits for its end.
    ///
    /// # Panics
    ///
    /// If it doesn't end in time.
    pub fn wait(&mut self) -> ExitStatus {
        self.input = None;
        self.wait_with_open_input()
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// If it doesn't end in time.
    pub fn wait_with_open_input(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                return status;
            }
            if Instant::now() > until {
                panic!("{} did not end in {PATIENCE:?}; on standard error: {:#?}", self.name, self.errors.seen);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether it still runs.
    ///
    /// # Panics
    ///
    /// Never, the child being ours.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the child is ours").is_none()
    }

    /// All of its standard error, once it has ended.
    pub fn rest_of_errors(&mut self) -> String {
        let until = Instant::now() + PATIENCE;
        while let Ok(Some(_)) = self.errors.next(until) {}
        self.errors.seen.join("\n")
    }

    /// All of its standard output, once it has ended.
    pub fn rest_of_output(&mut self) -> String {
        let until = Instant::now() + PATIENCE;
        while let Ok(Some(_)) = self.output.next(until) {}
        self.output.seen.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
