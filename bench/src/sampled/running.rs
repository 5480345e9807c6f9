//! A running workload, and the processor time of its rounds.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use harness::socket;

use super::workloads::{Input, Requests, Workload};
use crate::processor_time;

/// Number of requests of a batch, and of batches of a round.
const BATCH: u64 = 16;
const BATCHES: u64 = 1000;

/// Maximum time of a round. Each call of the slowest tracer is a hundred times as slow.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Running workload. Dropping this value kills it.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    rounds: Rounds,
}

/// Source of the ends of rounds.
enum Rounds {
    /// The program prints a line at the end of each round.
    Printed(Receiver<End>),
    Requested(Client),
}

/// Connection to a server.
struct Client {
    stream: UnixStream,
    requests: Requests,
    /// Number of requests so far.
    sent: u64,
}

/// End of a round.
#[derive(Clone, Copy, Debug)]
struct End {
    at: Instant,
    /// Processor time of the process so far, in seconds.
    processor: f64,
}

impl Running {
    /// Starts a workload on `processors`, and waits for its first round. `variables`: further variables of the environment.
    pub(super) fn start(workload: &Workload, processors: &str, variables: &[(&str, OsString)]) -> Result<Self> {
        let mut command = Command::new("taskset");
        // `env` sets the variables for the program only: a preloaded library would be loaded by `taskset`, too.
        command.args(["--cpu-list", processors, "env"]);
        for (name, value) in workload.environment {
            command.arg(format!("{name}={value}"));
        }
        for (name, value) in variables {
            let mut assignment = OsString::from(format!("{name}="));
            assignment.push(value);
            command.arg(assignment);
        }
        let has_input = matches!(workload.input, Input::Repeated(_));
        if has_input {
            // The program would collect its lines otherwise.
            command.args(["stdbuf", "--output=L"]);
        }
        command.args(&workload.words).stderr(Stdio::null());
        command.stdin(if has_input { Stdio::piped() } else { Stdio::null() });
        command.stdout(if workload.is_server() { Stdio::null() } else { Stdio::piped() });
        let mut child = command.spawn().with_context(|| format!("cannot run {}", workload.name))?;
        if let (Input::Repeated(text), Some(stdin)) = (&workload.input, child.stdin.take()) {
            feed(stdin, text.clone());
        }
        let rounds = match (&workload.input, child.stdout.take()) {
            (Input::Requests(requests), _) => {
                let stream = socket::connect(&requests.socket);
                Rounds::Requested(Client { stream, requests: requests.clone(), sent: 0 })
            }
            (_, Some(stdout)) => Rounds::Printed(read(stdout, child.id())),
            (_, None) => bail!("{} has no output", workload.name),
        };
        let mut running = Self { name: workload.name, child, rounds };
        running.measure(Duration::ZERO)?;
        Ok(running)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the processor time of a round, in seconds. Measures whole rounds for `slice` at least.
    pub(super) fn measure(&mut self, slice: Duration) -> Result<f64> {
        // Rounds that have begun before are left out.
        if let Rounds::Printed(ends) = &self.rounds {
            while ends.try_recv().is_ok() {}
        }
        let first = self.next()?;
        for count in 1_u32.. {
            let end = self.next()?;
            if end.at - first.at >= slice {
                return Ok((end.processor - first.processor) / f64::from(count));
            }
        }
        bail!("{} has too many rounds", self.name)
    }

    /// Waits for the end of the next round.
    fn next(&mut self) -> Result<End> {
        match &mut self.rounds {
            Rounds::Printed(ends) => ends.recv_timeout(TIMEOUT).map_err(|error| match error {
                RecvTimeoutError::Timeout => anyhow::anyhow!("{} finishes no round in {TIMEOUT:?}", self.name),
                RecvTimeoutError::Disconnected => anyhow::anyhow!("{} has ended, or its result has changed", self.name),
            }),
            Rounds::Requested(client) => {
                client.round().with_context(|| format!("{} does not answer", self.name))?;
                Ok(End { at: Instant::now(), processor: processor_time::process(self.child.id())? })
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the process has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a text again and again, until the reader ends.
fn feed(mut stdin: ChildStdin, text: String) {
    thread::spawn(move || while stdin.write_all(text.as_bytes()).is_ok() {});
}

/// Sends the end of each round. Stops at a line that differs from the first one: then, a result is wrong.
fn read(stdout: ChildStdout, pid: u32) -> Receiver<End> {
    let (sender, ends) = mpsc::channel();
    thread::spawn(move || {
        let mut first: Option<String> = None;
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let Ok(processor) = processor_time::process(pid) else { return };
            let is_equal = *first.get_or_insert_with(|| line.clone()) == line;
            if !is_equal || sender.send(End { at: Instant::now(), processor }).is_err() {
                return;
            }
        }
    });
    ends
}

impl Client {
    /// Sends the requests of a round, and compares the replies.
    fn round(&mut self) -> Result<()> {
        let expected = self.requests.reply.repeat(BATCH as usize);
        let mut replies = vec![0; expected.len()];
        for _ in 0..BATCHES {
            let batch: Vec<u8> = (self.sent..self.sent + BATCH).flat_map(self.requests.request).collect();
            self.stream.write_all(&batch)?;
            self.stream.read_exact(&mut replies)?;
            ensure!(replies == expected, "a reply is {}", String::from_utf8_lossy(&replies));
            self.sent += BATCH;
        }
        Ok(())
    }
}
