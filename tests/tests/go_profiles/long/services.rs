//! Services of Debian under load: the functions with the most memory have the bytes of the own heap profile.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{fs, io, thread};

use memtrace_tests::process::{Process, TIMEOUT};
use memtrace_tests::{Scratch, Trace, poll, pprof};

/// Pause between two requests. Their garbage must not cause more collections than the snapshots can see.
const REQUESTS: Duration = Duration::from_millis(50);

/// Pause between two snapshots of the service's own profile.
const SNAPSHOTS: Duration = Duration::from_millis(80);

/// Number of compared functions.
const LARGEST: usize = 10;

/// Minimum number of functions with memory in a profile.
const LEAST: usize = 4;

/// Maximum difference of a function in bytes, from the rounding of its stacks.
const ROUNDING: f64 = 64.0;

/// In-use bytes by function.
type Functions = BTreeMap<String, f64>;

/// A running service.
struct Service {
    process: Process,
    /// Port of the service's own profile.
    profile: u16,
    /// Port of the requests.
    port: u16,
    path: &'static str,
}

/// Returns the program of a package that `cargo xtask setup --long` has unpacked.
fn program(package: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/services").join(package);
    let program = folder.join("usr/bin").join(package);
    assert!(program.exists(), "there is no {}: run `cargo xtask setup --long`", program.display());
    program
}

/// Returns a port of TCP that no program uses.
fn free_port() -> u16 {
    let listener = TcpListener::bind("localhost:0").expect("a port is free");
    listener.local_addr().expect("the socket has an address").port()
}

/// Returns the body of the answer to a request.
fn get(port: u16, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("localhost", port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost:{port}\r\nAccept-Encoding: gzip\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    match head.filter(|_| answer.starts_with(b"HTTP/1.0 200 ")) {
        Some(head) => Ok(answer.split_off(head + 4)),
        None => Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())),
    }
}

impl Service {
    /// Starts a file server.
    fn caddy(scratch: &Scratch) -> Self {
        let (profile, port) = (free_port(), free_port());
        let text = format!(
            "{{\n  admin localhost:{profile}\n}}\n\
             :{port} {{\n  root * /usr/share/doc\n  file_server browse\n  encode gzip\n}}\n"
        );
        let mut caddy = Command::new(program("caddy"));
        caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(scratch.write("Caddyfile", text.as_bytes()));
        caddy.env("XDG_DATA_HOME", &**scratch).env("XDG_CONFIG_HOME", &**scratch);
        Self::start(&mut caddy, profile, port, "/")
    }

    /// Starts a time series database that collects nothing.
    fn prometheus(scratch: &Scratch) -> Self {
        let port = free_port();
        let config = scratch.write("prometheus.yml", b"global:\n  scrape_interval: 1m\n");
        let mut prometheus = Command::new(program("prometheus"));
        prometheus.arg(format!("--config.file={}", config.display()));
        prometheus.arg(format!("--storage.tsdb.path={}", scratch.join("data").display()));
        prometheus.arg(format!("--web.listen-address=localhost:{port}"));
        Self::start(&mut prometheus, port, port, "/metrics")
    }

    /// Starts the service, and waits until it answers.
    fn start(command: &mut Command, profile: u16, port: u16, path: &'static str) -> Self {
        let process = Process::start(command);
        poll::until(|| get(port, path).and_then(|_| get(profile, "/debug/pprof/heap")));
        Self { process, profile, port, path }
    }

    /// Traces the service under load. Returns memtrace's numbers, and the numbers of each different snapshot of the service's
    /// own profile.
    fn trace(&self, scratch: &Scratch) -> (Functions, Vec<Functions>) {
        let traced = scratch.join("traced.pb.gz");
        let (port, path) = (self.port, self.path);
        let files = thread::scope(|scope| {
            // The requests end when the sender is dropped, even by a panic of this function.
            let (under_load, end) = mpsc::channel::<()>();
            scope.spawn(move || {
                while end.recv_timeout(REQUESTS) == Err(RecvTimeoutError::Timeout) {
                    get(port, path).expect("the service answers");
                }
            });
            let trace = Trace::pids(&[self.process.pid()]).options(&["-d", "3s"]).option("-o").option(&traced);
            let mut tracer = trace.start();
            let mut files = vec![self.snapshot(scratch, 0)];
            while tracer.process().is_running() {
                files.push(self.snapshot(scratch, files.len()));
                thread::sleep(SNAPSHOTS);
            }
            files.push(self.snapshot(scratch, files.len()));
            drop(under_load);
            tracer.wait().assert_code(0);
            files
        });
        let mut snapshots: Vec<Functions> = Vec::new();
        for functions in files.iter().map(|file| pprof::in_use_by_function(file)) {
            if !snapshots.contains(&functions) {
                snapshots.push(functions);
            }
        }
        (pprof::in_use_by_function(&traced), snapshots)
    }

    /// Writes the service's own profile to a file.
    fn snapshot(&self, scratch: &Scratch, number: usize) -> PathBuf {
        let profile = get(self.profile, "/debug/pprof/heap").expect("the service writes its profile");
        let file = scratch.join(format!("own-{number}.pb.gz"));
        fs::write(&file, profile).expect("the snapshot can be written");
        file
    }
}

/// Returns the differences of the largest functions of a snapshot: each with its bytes in memtrace's profile and in the snapshot.
fn differences<'a>(traced: &Functions, snapshot: &'a Functions) -> Vec<(&'a str, f64, f64)> {
    let mut largest: Vec<_> = snapshot.iter().filter(|(_, bytes)| **bytes > 0.0).collect();
    assert!(largest.len() >= LEAST, "the profile has few functions: {snapshot:?}");
    largest.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let pairs = largest.into_iter().take(LARGEST).map(|(name, bytes)| {
        let found = traced.get(name).copied().unwrap_or_default();
        (name.as_str(), found, *bytes)
    });
    pairs.filter(|(_, found, bytes)| (found - bytes).abs() > ROUNDING).collect()
}

/// Asserts that the largest functions of one snapshot have the same in-use bytes in memtrace's profile.
fn assert_equals_a_snapshot(service: &Service, scratch: &Scratch) {
    let (traced, snapshots) = service.trace(scratch);
    let all: Vec<_> = snapshots.iter().map(|snapshot| differences(&traced, snapshot)).collect();
    assert!(all.iter().any(Vec::is_empty), "no snapshot of {} is equal: {all:#?}", all.len());
}

#[test]
fn profile_of_caddy_equals_its_own() {
    let scratch = Scratch::new();
    assert_equals_a_snapshot(&Service::caddy(&scratch), &scratch);
}

#[test]
fn profile_of_prometheus_equals_its_own() {
    let scratch = Scratch::new();
    assert_equals_a_snapshot(&Service::prometheus(&scratch), &scratch);
}
