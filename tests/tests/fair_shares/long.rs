//! A busy machine: databases, compilers, a process that hoards small blocks, and a user with many processes. Processes of a
//! user within the share stay exact.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use memtrace_tests::redis::{self, Redis};
use memtrace_tests::report::ProcessReport;
use memtrace_tests::{Report, Scratch, Trace, Victim, VictimTotals, victim};

use super::{INCOMPLETE, NOBODY};

/// Default duration of the trace in seconds; `MEMTRACE_SHARES_SECONDS` sets another duration.
const SECONDS: u64 = 120;
const DATABASE_USER: u32 = 54_401;
/// User with many processes.
const BUSY_USER: u32 = 54_402;
/// User of the processes that stay exact.
const EXACT_USER: u32 = 54_403;
/// Time limit for the report.
const REPORT: Duration = Duration::from_secs(5);
/// Number of processes of the busy user.
const BUSY: usize = 200;

/// Program that keeps allocating blocks of 16 bytes. It frees each block after five million further allocations.
const HOARDER: &str = r"
    #include <stdlib.h>
    #define BLOCKS 5000000
    static void *blocks[BLOCKS];
    int main(void) {
        for (size_t i = 0;; i = (i + 1) % BLOCKS) {
            free(blocks[i]);
            blocks[i] = malloc(16);
        }
    }";

/// Program that allocates blocks slowly until it holds 2,000. Then it replaces one block after the other.
const BUSY_PROGRAM: &str = r"
    #include <stdlib.h>
    #include <unistd.h>
    #define BLOCKS 2000
    static void *blocks[BLOCKS];
    int main(void) {
        for (size_t i = 0;; i = (i + 1) % BLOCKS) {
            free(blocks[i]);
            blocks[i] = malloc(16 + i % 200);
            usleep(5000);
        }
    }";

/// A process that is killed when this value is dropped.
struct Killed(Child);

impl Killed {
    fn start(command: &mut Command, user: u32) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).uid(user).gid(user);
        Self(command.spawn().expect("the program starts"))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes small values into a database until `is_done`.
fn load(socket: &Path, is_done: &AtomicBool) {
    let mut redis = Redis::connect(socket);
    for number in 0.. {
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        redis.send(&["SET", &format!("key:{}", number % 400_000), "a small value"]);
    }
    redis.shut_down();
}

/// Compiles a program repeatedly until `is_done`.
fn compile(scratch: &Scratch, is_done: &AtomicBool) {
    let functions: String =
        (0..300).map(|number| format!("int f{number}(int n) {{ return n * {number}; }}\n")).collect();
    let source = scratch.write("compiled.c", functions.as_bytes());
    while !is_done.load(Ordering::Relaxed) {
        let object = scratch.path("compiled.o");
        let status = Command::new("gcc").args(["-O2", "-c", "-o"]).arg(object).arg(&source).status();
        assert!(status.expect("gcc starts").success());
    }
}

/// Number of steps of a program with known totals.
const STEPS: usize = 20;
/// Number of programs with known totals. They run until the end of the test: memtrace has limited memory for ended
/// processes, so the report of a long trace merges some of them.
const EXACT: u32 = 100;

/// Starts a program with known totals at each interval until `is_done`.
fn run_exact(program: &Path, interval: Duration, is_done: &AtomicBool) -> Vec<(Victim, VictimTotals)> {
    let mut all = Vec::new();
    while !is_done.load(Ordering::Relaxed) {
        let mut victim = Victim::start(Command::new(program).arg("40").uid(EXACT_USER).gid(EXACT_USER));
        (1..STEPS).for_each(|_| _ = victim.work());
        let totals = victim.work();
        all.push((victim, totals));
        thread::sleep(interval);
    }
    all
}

/// Returns the entry of a running process. The compilers use up all pids, so an earlier process can have the same pid.
fn entry(report: &Report, pid: u32, user: u32) -> &ProcessReport {
    let entries = report.entries_of(pid);
    let found = entries.iter().rfind(|process| process.uid == Some(user));
    found.unwrap_or_else(|| panic!("no entry of {pid}: {entries:#?}"))
}

#[test]
fn processes_within_their_share_stay_exact_on_a_busy_machine() {
    let seconds =
        env::var("MEMTRACE_SHARES_SECONDS").map_or(SECONDS, |text| text.parse().expect("a number of seconds"));
    let scratch = Scratch::new();
    let hoarder = scratch.compile("gcc", "mt-hoarder", HOARDER, &["-O0"]);
    let busy = scratch.compile("gcc", "mt-busy", BUSY_PROGRAM, &["-O0"]);
    let exact = scratch.copy(victim::path("steady"), "mt-steady");
    let sockets = ["one", "two"].map(|name| {
        let directory = scratch.subdirectory(name);
        std::os::unix::fs::chown(&directory, Some(DATABASE_USER), None).expect("the test runs as root");
        redis::socket_in(&directory)
    });
    // Reports have an entry for each process of this test.
    let tracer = Trace::system_wide().options(&["--keep-ended", "100000"]).start();
    let mut killed = vec![Killed::start(&mut Command::new(hoarder), NOBODY)];
    killed.extend((0..BUSY).map(|_| Killed::start(&mut Command::new(&busy), BUSY_USER)));
    killed.extend(sockets.iter().map(|socket| {
        let words = redis::command(socket);
        Killed::start(Command::new(&words[0]).args(&words[1..]), DATABASE_USER)
    }));
    let mut steady = Victim::start(Command::new(&exact).arg("40").uid(EXACT_USER));
    let is_done = AtomicBool::new(false);
    let exact = thread::scope(|scope| {
        let loads = sockets.iter().map(|socket| scope.spawn(|| load(socket, &is_done)));
        let mut others: Vec<ScopedJoinHandle<'_, ()>> = loads.collect();
        others.push(scope.spawn(|| compile(&scratch, &is_done)));
        let exact = scope.spawn(|| run_exact(&exact, Duration::from_secs(seconds) / EXACT, &is_done));
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            steady.work();
            // The victim has room for 65,536 blocks, and keeps nine of each step.
            thread::sleep(Duration::from_millis(250));
        }
        is_done.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|thread| thread.join().expect("the load ends"));
        exact.join().expect("the victims end")
    });
    let expected = steady.work();
    let start = Instant::now();
    let outcome = tracer.stop();
    let time = start.elapsed();
    println!("report after {time:?}, lost: {:?}", outcome.report_with_code(INCOMPLETE).lost());
    assert!(time < REPORT, "the report took {time:?}");
    let hoarder_pid = killed[0].0.id();
    drop(killed);
    let report = outcome.report_with_code(INCOMPLETE);
    assert!(entry(&report, hoarder_pid, NOBODY).demotion.is_some(), "the hoarder is demoted");
    assert!(exact.len() > 10, "{} processes", exact.len());
    let all = exact.iter().map(|(victim, expected)| (victim.pid(), expected)).chain([(steady.pid(), &expected)]);
    for (pid, expected) in all {
        let entry = entry(&report, pid, EXACT_USER);
        entry.assert_equals(expected);
        assert_eq!(entry.demotion, None);
    }
    println!("{} processes were exact, lost: {:?}", exact.len(), report.lost());
    assert_eq!(report.lost().get("ledger_full"), None);
    exact.into_iter().for_each(|(victim, _)| victim.finish());
    steady.finish();
    fs::remove_file(scratch.path("compiled.o")).expect("gcc has written it");
}
