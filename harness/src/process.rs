//! Child processes that are driven line by line through their standard streams.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Default time limit of every wait. It is long, so that only a hang reaches it: in an emulated guest, the start of a trace
/// of the whole machine can take more than a minute.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// Time from the end of a process's input to its exit, if it is ending.
const ENDING: Duration = Duration::from_secs(1);

/// Runs `command` and returns its standard output. The command must succeed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// Returns the minor and the major page faults of a process as the kernel counts them (proc_pid_stat(5)).
#[must_use]
pub fn page_faults(pid: u32) -> [u64; 2] {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, after_name) = stat.rsplit_once(')').expect("the name is in parentheses");
    // proc(5) counts fields from 1; the first field after the name is field 3.
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    [10, 12].map(|field| fields[field - 3].parse().expect("a page fault counter is a number"))
}

/// Waits until the process is blocked in a read of its standard input.
pub fn wait_until_reading_stdin(pid: u32) {
    // The number of the system call, then its first argument; standard input is 0.
    let reading = format!("{} 0x0 ", libc::SYS_read);
    wait_for_file(pid, "syscall", |call| call.starts_with(&reading), "read its standard input");
}

/// Waits until `is_reached` accepts the content of the file `/proc/PID/{file}`. `action` completes the message
/// "process PID does not".
pub fn wait_for_file(pid: u32, file: &str, is_reached: impl Fn(&str) -> bool, action: &str) {
    let path = format!("/proc/{pid}/{file}");
    let deadline = Instant::now() + TIMEOUT;
    while !is_reached(&fs::read_to_string(&path).expect("the process runs and the test runs as root")) {
        assert!(Instant::now() < deadline, "process {pid} does not {action}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the children of a process. Each thread has its own list. A process that has ended has none.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Waits until a child exits, for at most `timeout`. Returns false if it still runs. Waits on a pidfd, which becomes readable
/// when the process exits (pidfd_open(2)).
pub fn exits_within(child: &mut Child, timeout: Duration) -> bool {
    if !matches!(child.try_wait(), Ok(None)) {
        return true;
    }
    // SAFETY: pidfd_open takes two numbers. The child has not been reaped, so the pid is its own.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    assert!(pidfd >= 0, "no pidfd of process {}: {}", child.id(), io::Error::last_os_error());
    let pidfd = i32::try_from(pidfd).expect("a file descriptor fits into an int");
    // SAFETY: the descriptor was just opened and has no other owner.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = i32::try_from(timeout.as_millis()).expect("time limits are short");
    // SAFETY: the pointer is to one pollfd with an open descriptor.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) > 0 }
}

/// A running child process. Dropping it kills the process.
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines,
    stderr: Lines,
    timeout: Duration,
}

/// Lines of a stream. A thread reads the lines as they arrive.
struct Lines {
    receiver: Receiver<String>,
    received: Vec<String>,
}

impl Lines {
    fn new(source: impl Read + Send + 'static) -> Self {
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
        Self { receiver, received: Vec::new() }
    }

    /// Returns the next line, or `None` at the end of the stream.
    fn next(&mut self, deadline: Instant) -> Result<Option<&str>, RecvTimeoutError> {
        match self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.received.push(line);
                Ok(self.received.last().map(String::as_str))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(timeout) => Err(timeout),
        }
    }

    /// Returns all lines of the stream, including those that `next` has returned.
    fn read_to_end(&mut self, deadline: Instant) -> String {
        while let Ok(Some(_)) = self.next(deadline) {}
        self.received.join("\n")
    }
}

impl Process {
    /// Starts `command` with pipes for its three standard streams.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        Self::spawn(command.stderr(Stdio::piped()))
    }

    /// Starts `command` with pipes for its standard input and output. The command shares the standard error of this
    /// process.
    #[must_use]
    pub fn start_with_inherited_stderr(command: &mut Command) -> Self {
        Self::spawn(command.stderr(Stdio::inherit()))
    }

    fn spawn(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let stdout = Lines::new(child.stdout.take().expect("standard output is piped"));
        let stderr = match child.stderr.take() {
            Some(stderr) => Lines::new(stderr),
            None => Lines::new(io::empty()),
        };
        Self { name, stdin: child.stdin.take(), stdout, stderr, child, timeout: TIMEOUT }
    }

    /// Replaces the default time limit, [`TIMEOUT`].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes one line to the standard input of the process.
    pub fn write_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its standard input is open");
        // The line is written at once: a process may read bytes, not lines.
        if let Err(error) = stdin.write_all(format!("{line}\n").as_bytes()) {
            let status = exits_within(&mut self.child, ENDING).then(|| self.child.wait());
            panic!("cannot write to {}: {error}; its status: {status:?}", self.name);
        }
    }

    /// Returns the next line of the standard output of the process.
    pub fn read_line(&mut self) -> String {
        match self.stdout.next(Instant::now() + self.timeout) {
            Ok(Some(line)) => line.to_owned(),
            Ok(None) => {
                let stderr = self.remaining_stderr();
                panic!("{} closed its standard output; standard error: {stderr}", self.name)
            }
            Err(_) => self.time_out("write a line"),
        }
    }

    /// Waits for a line on standard error that starts with `prefix`. Returns false if standard error ends first.
    pub fn wait_for_stderr_line(&mut self, prefix: &str) -> bool {
        self.wait_for_stderr(|line| line.starts_with(prefix))
    }

    /// Waits for a line on standard error that `is_expected` accepts. Returns false if standard error ends first.
    pub fn wait_for_stderr(&mut self, is_expected: impl Fn(&str) -> bool) -> bool {
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.stderr.next(deadline) {
                Ok(Some(line)) if is_expected(line) => return true,
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => self.time_out("write the expected line to standard error"),
            }
        }
    }

    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.pid()).expect("a pid fits into pid_t");
        // SAFETY: kill has no conditions. The pid is the child's until `wait` or `is_running` reaps the child.
        let result = unsafe { libc::kill(pid, signal) };
        assert_eq!(result, 0, "cannot send signal {signal} to {}", self.name);
    }

    /// Closes the standard input of the process, and waits until the process exits.
    pub fn wait(&mut self) -> ExitStatus {
        self.stdin = None;
        self.wait_with_open_stdin()
    }

    /// Waits until the process exits.
    pub fn wait_with_open_stdin(&mut self) -> ExitStatus {
        if !exits_within(&mut self.child, self.timeout) {
            self.time_out("exit");
        }
        self.child.wait().expect("the process is a child that can be waited for")
    }

    /// Returns true if the process has not exited.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the process is a child that can be waited for").is_none()
    }

    /// Returns the whole standard error. The process must have exited.
    pub fn remaining_stderr(&mut self) -> String {
        self.stderr.read_to_end(Instant::now() + self.timeout)
    }

    /// Returns the whole standard output. The process must have exited.
    pub fn remaining_stdout(&mut self) -> String {
        self.stdout.read_to_end(Instant::now() + self.timeout)
    }

    fn time_out(&self, action: &str) -> ! {
        panic!("{} did not {action} in {:?}; standard error: {:#?}", self.name, self.timeout, self.stderr.received)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
