//! `memtrace explain` on real applications. The parts must add up to nearly all of the RSS, and must match the kernel's
//! counters.

#![expect(clippy::print_stdout, reason = "the tests print the measured shares")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use memtrace_tests::process::{Process, run};
use memtrace_tests::{Explanation, Scratch, explain};

const MIB: u64 = 1 << 20;

/// Minimum share of the RSS that is explained.
const SHARE: f64 = 0.97;

fn assert_explained(page: &Explanation) {
    println!("{:.3}% of {} bytes explained", page.explained * 100.0, page.rss_bytes);
    assert!(page.explained >= SHARE, "{page:#?}");
    page.assert_adds_up();
}

/// A running application. It ends with the test.
struct Program(Process);

impl Program {
    /// Starts the command and waits for an output line that contains `ready`.
    fn start(command: &mut Command, ready: &str) -> Self {
        let mut process = Process::start(command);
        while !process.read_line().contains(ready) {}
        Self(process)
    }

    fn page(&self) -> Explanation {
        explain::explain_pid(self.0.pid())
    }
}

#[test]
fn python_is_explained() {
    let program = "
import json, os, re, sqlite3
table = {number: [str(number)] * 3 for number in range(200000)}
for number in range(0, 200000, 3):
    del table[number]
print('ready', flush=True)
os.read(0, 1)
";
    let python = Program::start(Command::new("/usr/bin/python3").args(["-c", program]), "ready");
    let page = python.page();
    assert_explained(&page);
    // Python maps memory for small objects itself.
    assert!(page.anonymous("without a name").is_some_and(|usage| usage.resident_bytes > 10 * MIB), "{page:#?}");
    assert!(page.blocks().in_use_bytes > MIB, "{page:#?}");
}

#[test]
fn redis_with_jemalloc_is_explained() {
    let scratch = Scratch::new();
    let socket = scratch.join("socket");
    let mut command = Command::new("/usr/bin/redis-server");
    command
        .args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--unixsocket"])
        .arg(&socket)
        .current_dir(&*scratch);
    let redis = Program::start(&mut command, "ready to accept connections");
    let mut client = UnixStream::connect(&socket).expect("redis listens");
    client.write_all(b"DEBUG POPULATE 200000\r\n").expect("redis reads");
    let mut answer = [0; 5];
    client.read_exact(&mut answer).expect("redis answers");
    assert_eq!(&answer, b"+OK\r\n");
    let page = redis.page();
    assert_explained(&page);
    assert_eq!((page.heap.allocator.as_deref(), page.heap.blocks.is_some()), (Some("jemalloc"), false));
    assert!(page.heap.not_told.as_ref().is_some_and(|why| why.contains("jemalloc has no block headers")), "{page:#?}");
    // The table has 200,000 names and values.
    assert!(page.heap.sizes.resident_bytes > 16 * MIB, "{page:#?}");
}

#[test]
fn node_is_explained() {
    let program = "
const kept = [];
for (let i = 0; i < 300000; i++) kept.push({ i, text: 'number ' + i });
console.log('ready');
process.stdin.on('data', () => process.exit(kept.length ? 0 : 1));
";
    let node = Program::start(Command::new("/usr/bin/node").args(["-e", program]), "ready");
    let page = node.page();
    assert_explained(&page);
    // glibc caches the stacks of exited threads.
    assert!(page.thread_stacks.count >= page.threads - 1, "{page:#?}");
    assert!(page.anonymous("without a name").is_some_and(|usage| usage.resident_bytes > 10 * MIB), "{page:#?}");
}

#[test]
fn postgres_with_shared_buffers_is_explained() {
    let scratch = Scratch::new();
    let (initdb, server) = (postgres("initdb"), postgres("postgres"));
    let data = scratch.join("data");
    // The server refuses to run as root.
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    run(Command::new("setpriv")
        .args(user)
        .arg(initdb)
        .args(["--no-sync", "-A", "trust", "-U", "test", "-D"])
        .arg(&data));
    let mut command = Command::new("setpriv");
    command.args(user).arg(server).arg("-D").arg(&data).arg("-k").arg(&*scratch);
    command.args(["-c", "listen_addresses=", "-c", "shared_buffers=64MB", "-c", "logging_collector=off"]);
    let mut process = Process::start(&mut command);
    assert!(process.wait_for_stderr(|line| line.contains("ready to accept connections")), "postgres ended");
    let page = explain::explain_pid(process.pid());
    assert_explained(&page);
    let shared: u64 = page.shmem.iter().map(|named| named.sizes.reserved_bytes).sum();
    assert!(shared > 64 * MIB, "{page:#?}");
    process.signal(libc::SIGINT);
    assert!(process.wait().success());
}

/// Returns the path of an executable of PostgreSQL on Debian, of any version.
fn postgres(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
    let folders = versions.map(|version| version.expect("a version").path().join("bin").join(name));
    folders.into_iter().find(|path| path.is_file()).expect("PostgreSQL has the executable")
}

#[test]
fn busy_process_adds_up_despite_torn_reads() {
    let program = "
import threading
print('ready', flush=True)
def churn():
    kept = []
    while True:
        kept.append(bytes(700))
        if len(kept) > 20000:
            kept = kept[::3]
for _ in range(3):
    threading.Thread(target=churn, daemon=True).start()
input()
";
    let mut command = Command::new("/usr/bin/python3");
    let mut python = Program::start(command.args(["-c", program]).env("PYTHONMALLOC", "malloc"), "ready");
    for _ in 0..5 {
        let page = python.page();
        assert_eq!(page.heap.allocator.as_deref(), Some("glibc"));
        match page.heap.blocks {
            Some(blocks) => assert!(blocks.in_use_resident_bytes <= page.heap.sizes.reserved_bytes, "{page:#?}"),
            None => assert!(page.heap.not_told.is_some(), "{page:#?}"),
        }
    }
    python.0.write_line("");
    assert!(python.0.wait().success(), "explain has disturbed it: {}", python.0.remaining_stderr());
}
