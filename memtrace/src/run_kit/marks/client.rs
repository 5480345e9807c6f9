//! Client of the sockets of running traces.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_model::printable;

use super::protocol::{MAX_LINE, Service, StoredMark, parse_answer, parse_greeting};
use super::socket::{EXTENSION, directory};

/// Time limit for an answer. It exceeds the 30 s for which the server waits until the mark is stored.
const ANSWER: Duration = Duration::from_secs(40);

/// Reason why a mark could not be set.
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
            Self::NotRunning(_) | Self::Other { .. } => "check --socket; without it, the trace is found",
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
            let connection = Connection::open(path)?;
            match connection.trace.service {
                other if other != service => Err(MarkError::Other { path: path.to_owned(), service: other }),
                _ => connection.set(text),
            }
        }
        None => set_in_directory(service, &directory(), text),
    }
}

fn set_in_directory(service: Service, directory: &Path, text: &str) -> Result<StoredMark, MarkError> {
    let mut running = find(directory)?;
    running.retain(|connection| connection.trace.service == service);
    match (running.pop(), running.is_empty()) {
        (None, _) => Err(MarkError::NoneRunning(service)),
        (Some(only), true) => only.set(text),
        (Some(last), false) => {
            running.push(last);
            Err(MarkError::Several(service, running.into_iter().map(|connection| connection.trace).collect()))
        }
    }
}

/// Connects to all traces with a socket in `directory`. Removes the sockets of processes that were killed.
fn find(directory: &Path) -> Result<Vec<Connection>, MarkError> {
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
    let mut running = Vec::new();
    for path in paths {
        match Connection::open(&path) {
            Ok(connection) => running.push(connection),
            Err(MarkError::NotRunning(_)) => {
                // A stale socket that cannot be removed is ignored.
                let _ = fs::remove_file(&path);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(running)
}

/// Connection to a trace that has sent its greeting.
#[derive(Debug)]
struct Connection {
    trace: RunningTrace,
    stream: BufReader<UnixStream>,
}

impl Connection {
    fn open(path: &Path) -> Result<Self, MarkError> {
        let failed = |source| MarkError::Failed { path: path.to_owned(), source };
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => MarkError::NotRunning(path.to_owned()),
            io::ErrorKind::PermissionDenied => MarkError::NotPermitted(path.to_owned()),
            _ => failed(error),
        })?;
        stream.set_read_timeout(Some(ANSWER)).map_err(failed)?;
        let mut stream = BufReader::new(stream);
        let line = read_line(&mut stream).map_err(failed)?;
        if let Some(Err(reason)) = parse_answer(&line) {
            log::debug!("{}: {reason}", printable(path));
            return Err(MarkError::NotPermitted(path.to_owned()));
        }
        let Some((service, pid, name)) = parse_greeting(&line) else {
            return Err(failed(io::Error::other("another program listens there, or another version of memtrace")));
        };
        let trace = RunningTrace { service, socket: path.to_owned(), pid, name: name.to_owned() };
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
    use std::thread;

    use harness::Scratch;

    use super::super::protocol::{answer, greeting};
    use super::*;

    /// Answers one connection. Returns the line that the client sent.
    fn serve(path: &Path, pid: u32) -> thread::JoinHandle<String> {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(greeting(Service::Recording, pid, "run.memtrace").as_bytes()).unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let mark = StoredMark { text: format!("{}#2", line.trim_end()), at: Duration::from_millis(1500) };
            // A client that finds several traces has closed the connection.
            let _ = stream.write_all(answer(&Ok(mark)).as_bytes());
            line
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
    fn several_recordings_are_listed() {
        let scratch = Scratch::in_memory();
        let servers: Vec<_> = [8, 9].map(|pid| serve(&scratch.path(&format!("{pid}.sock")), pid)).into();
        let error = set_in_directory(Service::Recording, &scratch.path(""), "a").unwrap_err().to_string();
        assert!(error.contains("8.sock (process 8, run.memtrace)\n") && error.contains("9.sock"), "{error}");
        for server in servers {
            assert_eq!(server.join().unwrap(), "", "no mark is set");
        }
    }
}
