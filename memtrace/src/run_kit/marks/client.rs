//! Client of the sockets of running traces.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use memtrace_model::printable;

use super::protocol::{MAX_LINE, Service, StoredMark, parse_answer, parse_greeting};
use super::socket::{EXTENSION, directory};

/// Time limit for an answer. It exceeds the server's time limit of 30 s for storing a mark.
const ANSWER: Duration = Duration::from_secs(40);

/// Time limit for the greetings. If no trace of the service has sent one by then, the silent sockets get another
/// [`ANSWER`].
const GREETING: Duration = Duration::from_secs(2);

/// Maximum number of traces that are asked at once.
const AT_ONCE: usize = 32;

/// Reason that a mark could not be set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MarkError {
    #[error("no {} are running", .0.plural())]
    NoneRunning(Service),
    #[error("several {} are running:{}", .0.plural(), list(.1))]
    Several(Service, Vec<RunningTrace>),
    #[error("not permitted to connect to {}", printable(.0))]
    NotPermitted(PathBuf),
    #[error("no trace listens at {}", printable(.0))]
    NotRunning(PathBuf),
    /// The trace has closed its socket before the request.
    #[error("the trace at {} has ended", printable(.0))]
    Ended(PathBuf),
    #[error("the trace at {} needs `{}`", printable(path), service.command())]
    Other { path: PathBuf, service: Service },
    /// The trace refused the request, with this reason.
    #[error("the request is refused: {0}")]
    Refused(String),
    #[error("cannot talk to the trace at {}: {source}", printable(path))]
    Failed { path: PathBuf, source: io::Error },
}

impl MarkError {
    /// Returns advice for the user, as a sentence without its full stop; `None` if there is none.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoneRunning(Service::Recording) => {
                "start one with `memtrace record`; if it runs as root or as another user, run `memtrace mark` as that \
                 user, for example with sudo"
            }
            Self::NoneRunning(Service::Accounts) => {
                "start one with `memtrace accounts`; if it runs as root or as another user, run `memtrace reset` as that \
                 user, for example with sudo"
            }
            Self::Several(..) => "choose one with --socket",
            Self::NotPermitted(_) => "run this as root, or as the user of the trace",
            Self::NotRunning(_) | Self::Ended(_) | Self::Other { .. } => {
                "check --socket; without it, the trace is found"
            }
            Self::Refused(_) | Self::Failed { .. } => return None,
        })
    }
}

/// A running trace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RunningTrace {
    service: Service,
    socket: PathBuf,
    pid: u32,
    /// Printable path of the recording, or name of the targets.
    name: String,
}

fn list(traces: &[RunningTrace]) -> String {
    let line =
        |trace: &RunningTrace| format!("\n  {} (process {}, {})", printable(&trace.socket), trace.pid, trace.name);
    traces.iter().map(line).collect()
}

/// Sets a mark in the trace that listens on `socket`. Without `socket`, selects the only trace of this user with the
/// service. Returns when the mark is stored, or when new water marks have started. [`check`](super::check) must have
/// accepted the text.
pub(crate) fn set(service: Service, socket: Option<&Path>, text: &str) -> Result<StoredMark, MarkError> {
    match socket {
        Some(path) => {
            let connection = Connection::open(path, ANSWER)?;
            match connection.trace.service {
                other if other != service => Err(MarkError::Other { path: path.to_owned(), service: other }),
                _ => connection.set(text),
            }
        }
        None => set_in_directory(service, &directory(), text),
    }
}

fn set_in_directory(service: Service, directory: &Path, text: &str) -> Result<StoredMark, MarkError> {
    let sockets = sockets(directory)?;
    let (mut running, silent) = ask(&sockets, GREETING)?;
    running.retain(|trace| trace.service == service);
    if running.is_empty() {
        running = ask(&silent, ANSWER)?.0;
        running.retain(|trace| trace.service == service);
    }
    match running.as_slice() {
        [] => Err(MarkError::NoneRunning(service)),
        // Connect again: a trace closes a connection without a request after a second, and the answers of other traces may have
        // taken longer.
        [only] => set(service, Some(&only.socket), text),
        _ => Err(MarkError::Several(service, running)),
    }
}

/// Lists the sockets in `directory`.
fn sockets(directory: &Path) -> Result<Vec<PathBuf>, MarkError> {
    let failed = |source| MarkError::Failed { path: directory.to_owned(), source };
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(MarkError::NotPermitted(directory.to_owned()));
        }
        result => result.map_err(failed)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Connects to the sockets in parallel, because a trace that is still attaching answers late. Returns the running traces, and
/// the sockets without a greeting within `time`. Removes the sockets of killed processes.
fn ask(sockets: &[PathBuf], time: Duration) -> Result<(Vec<RunningTrace>, Vec<PathBuf>), MarkError> {
    let (mut running, mut silent) = (Vec::new(), Vec::new());
    for sockets in sockets.chunks(AT_ONCE) {
        let opened: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> =
                sockets.iter().map(|socket| scope.spawn(move || Connection::open(socket, time))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        for (socket, opened) in sockets.iter().zip(opened) {
            match opened {
                Ok(connection) => running.push(connection.trace),
                Err(MarkError::Ended(_)) => {}
                Err(MarkError::NotRunning(_)) => {
                    // A stale socket that cannot be removed is ignored.
                    let _ = fs::remove_file(socket);
                }
                // The read has timed out (SO_RCVTIMEO, socket(7)).
                Err(MarkError::Failed { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                    silent.push(socket.clone());
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok((running, silent))
}

/// Connection to a trace that has sent its greeting.
#[derive(Debug)]
struct Connection {
    trace: RunningTrace,
    stream: BufReader<UnixStream>,
}

impl Connection {
    /// Connects, and waits at most `time` for the greeting.
    fn open(path: &Path, time: Duration) -> Result<Self, MarkError> {
        let failed = |source| MarkError::Failed { path: path.to_owned(), source };
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => MarkError::NotRunning(path.to_owned()),
            io::ErrorKind::PermissionDenied => MarkError::NotPermitted(path.to_owned()),
            _ => failed(error),
        })?;
        stream.set_read_timeout(Some(time)).map_err(failed)?;
        let mut stream = BufReader::new(stream);
        let line = match read_line(&mut stream) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => String::new(),
            other => other.map_err(failed)?,
        };
        if line.is_empty() {
            return Err(MarkError::Ended(path.to_owned()));
        }
        if let Some(Err(reason)) = parse_answer(&line) {
            log::debug!("{}: {reason}", printable(path));
            return Err(MarkError::NotPermitted(path.to_owned()));
        }
        let Some((service, pid, name)) = parse_greeting(&line) else {
            return Err(failed(io::Error::other("another program listens there, or another version of memtrace")));
        };
        let trace = RunningTrace { service, socket: path.to_owned(), pid, name: name.to_owned() };
        stream.get_ref().set_read_timeout(Some(ANSWER)).map_err(failed)?;
        Ok(Self { trace, stream })
    }

    fn set(mut self, text: &str) -> Result<StoredMark, MarkError> {
        let result = self.stream.get_mut().write_all(format!("{text}\n").as_bytes());
        let line = result.and_then(|()| read_line(&mut self.stream));
        let line = line.map_err(|source| MarkError::Failed { path: self.trace.socket.clone(), source })?;
        match parse_answer(&line) {
            Some(result) => result.map_err(MarkError::Refused),
            None => Err(MarkError::Refused(String::from("the trace has ended"))),
        }
    }
}

/// Reads a line. The line is empty at the end of the stream.
fn read_line(stream: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    stream.take(MAX_LINE as u64).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use harness::Scratch;

    use super::super::protocol::{answer, greeting};
    use super::*;

    /// Answers connections until a client sends a line, and returns the line.
    fn serve(path: &Path, pid: u32) -> thread::JoinHandle<String> {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || {
            loop {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(greeting(Service::Recording, pid, "run.memtrace").as_bytes()).unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                if line.is_empty() {
                    continue;
                }
                let mark = StoredMark { text: format!("{}#2", line.trim_end()), at: Duration::from_millis(1500) };
                stream.write_all(answer(&Ok(mark)).as_bytes()).unwrap();
                return line;
            }
        })
    }

    #[test]
    fn only_running_recording_gets_the_mark() {
        let scratch = Scratch::in_memory();
        let directory = scratch.path("memtrace");
        assert!(matches!(set_in_directory(Service::Recording, &directory, "a"), Err(MarkError::NoneRunning(_))));
        fs::create_dir(&directory).unwrap();
        let stale = directory.join("7.sock");
        drop(UnixListener::bind(&stale).unwrap());
        let server = serve(&directory.join("8.sock"), 8);
        let mark = set_in_directory(Service::Recording, &directory, "after login").unwrap();
        assert_eq!((mark.text.as_str(), mark.at), ("after login#2", Duration::from_millis(1500)));
        assert_eq!(server.join().unwrap(), "after login\n");
        assert!(!stale.exists(), "the socket of a killed process is removed");
    }

    #[test]
    fn trace_that_still_attaches_is_not_waited_for() {
        let scratch = Scratch::in_memory();
        // The backlog takes the connection, and nobody answers.
        let _attaching = UnixListener::bind(scratch.path("7.sock")).unwrap();
        let server = serve(&scratch.path("8.sock"), 8);
        let start = Instant::now();
        assert_eq!(set_in_directory(Service::Recording, &scratch.path(""), "a").unwrap().text, "a#2");
        assert!(start.elapsed() < ANSWER);
        assert_eq!(server.join().unwrap(), "a\n");
    }

    #[test]
    fn trace_that_ends_meanwhile_is_left_out() {
        let scratch = Scratch::in_memory();
        let closing = UnixListener::bind(scratch.path("7.sock")).unwrap();
        let ends = thread::spawn(move || drop(closing.accept()));
        let server = serve(&scratch.path("8.sock"), 8);
        assert_eq!(set_in_directory(Service::Recording, &scratch.path(""), "a").unwrap().text, "a#2");
        ends.join().unwrap();
        assert_eq!(server.join().unwrap(), "a\n");
    }

    #[test]
    fn several_recordings_are_listed() {
        let scratch = Scratch::in_memory();
        let servers: Vec<_> = [8, 9].map(|pid| serve(&scratch.path(&format!("{pid}.sock")), pid)).into();
        let error = set_in_directory(Service::Recording, &scratch.path(""), "a").unwrap_err().to_string();
        assert!(error.contains("8.sock (process 8, run.memtrace)\n") && error.contains("9.sock"), "{error}");
        for (server, socket) in servers.into_iter().zip(["8.sock", "9.sock"]) {
            let mut client = UnixStream::connect(scratch.path(socket)).unwrap();
            client.write_all(b"end\n").unwrap();
            assert_eq!(server.join().unwrap(), "end\n", "no mark is set");
        }
    }
}
