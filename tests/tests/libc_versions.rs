//! Tests of the C libraries of several Debian releases: probed calls return the same results as unprobed ones, the
//! trace matches the victim's totals, and frees that the library repeats are recognized.
//!
//! A misplaced probe would change a function's behaviour, miss calls, record them twice or read a wrong argument.
//! `MEMTRACE_ROUNDS` sets the number of rounds, each with other arguments; the default is 1. With 20 rounds, each
//! function is called a million times.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace_tests::{Trace, Victim, VictimTotals, victim};
use serde::Deserialize;

/// Number of calls of each function in a round.
const CALLS: &str = "50000";

/// Number of calls of each function by each of the [`THREADS`] threads.
const CALLS_OF_THREAD: &str = "5000";

const THREADS: &str = "4";

/// Output of the victim.
#[derive(Debug, PartialEq, Deserialize)]
struct Work {
    /// Checksum of the results of the calls and the contents of the blocks.
    checksum: u64,
    #[serde(flatten)]
    totals: VictimTotals,
}

/// Output of the victim with threads that exit.
#[derive(Debug, PartialEq, Deserialize)]
struct ThreadExits {
    /// Number of frees that the library repeats.
    repeated_frees: u64,
    #[serde(flatten)]
    totals: VictimTotals,
}

/// Returns the path of the dynamic linker in the directory of an unpacked C library.
fn linker(library: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/libc").join(library);
    let places = ["lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "lib/x86_64-linux-musl/libc.so"];
    let places = places.into_iter().flat_map(|place| [root.join(place), root.join("usr").join(place)]);
    let found = places.into_iter().find(|place| place.exists());
    found.unwrap_or_else(|| panic!("no dynamic linker in {}; run `cargo xtask setup`", root.display()))
}

/// Returns a command that runs the library's dynamic linker. The caller adds the executable.
fn with_library(library: &str) -> Command {
    let linker = linker(library);
    let mut command = Command::new(&linker);
    command.arg("--library-path").arg(linker.parent().expect("the linker has a parent directory"));
    command
}

/// Returns a command that runs the victim with the library, without the victim's arguments.
fn calls_with(library: &str) -> Command {
    let mut command = with_library(library);
    if library == "musl" {
        command.arg(victim::path("calls.musl"));
    } else {
        // `thread_exits` gives the reason for the preloaded library.
        command.args(["--preload", "libpthread.so.0"]).arg(victim::path("calls"));
    }
    command
}

/// Returns a command that runs the victim with the library.
fn command(library: &str, round: u32) -> Command {
    let mut command = calls_with(library);
    command.args([CALLS, &round.to_string()]);
    command
}

/// Returns a command that runs the victim with threads. The threads share at most `arenas` arenas.
fn command_with_threads(library: &str, arenas: u32, round: u32) -> Command {
    let mut command = calls_with(library);
    command.args([CALLS_OF_THREAD, &round.to_string(), THREADS, &arenas.to_string()]);
    command
}

fn work(victim: &mut Victim) -> Work {
    let process = victim.process();
    process.write_line("");
    let line = process.read_line();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("invalid totals ({error}): {line}"))
}

/// Asserts that the victim of each round has the same results with and without probes, and that the trace has the
/// victim's totals.
fn assert_same_when_probed(command: impl Fn(u32) -> Command) {
    let rounds = env::var("MEMTRACE_ROUNDS").map_or(1, |rounds| rounds.parse().expect("MEMTRACE_ROUNDS is a number"));
    for round in 0..rounds {
        let mut victim = Victim::start(&mut command(round));
        let unprobed = work(&mut victim);
        victim.finish();

        let mut victim = Victim::start(&mut command(round));
        let options = ["--max-depth", "0", "--ring-size", "64MiB"];
        let tracer = Trace::victim(&victim).options(&options).start();
        let probed = work(&mut victim);
        let outcome = tracer.stop();
        victim.finish();

        assert_eq!(probed.checksum, unprobed.checksum, "round {round}");
        // The peak is not compared: with several threads, it depends on their order.
        assert_eq!(probed.totals.totals, unprobed.totals.totals, "round {round}");
        outcome.report().assert_equals(&probed.totals);
    }
}

/// Asserts that the library behaves the same with probes: for one thread, for threads that contend for one arena, and
/// for threads with an arena each.
fn assert_library_same_when_probed(library: &str) {
    assert_same_when_probed(|round| command(library, round));
    for arenas in [1, 4] {
        assert_same_when_probed(|round| command_with_threads(library, arenas, round));
    }
}

fn assert_repeated_frees_are_recognized(command: &mut Command) {
    let mut victim = Victim::start(command);
    let tracer = Trace::victim(&victim).start();
    victim.process().write_line("");
    let exits: ThreadExits = victim.read_json();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&exits.totals);
    assert_eq!(report.repeated_frees, exits.repeated_frees, "repeated frees");
}

/// Returns a command that runs the victim with threads that exit, with the library.
fn thread_exits(library: &str) -> Command {
    let mut command = with_library(library);
    // Before glibc 2.34, threads are in a library of their own. The victim is not linked to it.
    command.args(["--preload", "libpthread.so.0"]).arg(victim::path("thread_exits"));
    command
}

#[test]
fn repeated_frees_of_debian_11_are_recognized() {
    assert_repeated_frees_are_recognized(&mut thread_exits("bullseye"));
}

#[test]
fn repeated_frees_of_debian_12_are_recognized() {
    assert_repeated_frees_are_recognized(&mut thread_exits("bookworm"));
}

#[test]
fn repeated_frees_of_debian_13_are_recognized() {
    assert_repeated_frees_are_recognized(&mut thread_exits("trixie"));
}

#[test]
fn repeated_frees_of_debian_sid_are_recognized() {
    assert_repeated_frees_are_recognized(&mut thread_exits("sid"));
}

#[test]
fn repeated_frees_in_a_static_executable_are_recognized() {
    assert_repeated_frees_are_recognized(&mut Command::new(victim::path("thread_exits.static")));
}

#[test]
fn glibc_of_debian_11_behaves_the_same_when_probed() {
    assert_library_same_when_probed("bullseye");
}

#[test]
fn glibc_of_debian_12_behaves_the_same_when_probed() {
    assert_library_same_when_probed("bookworm");
}

#[test]
fn glibc_of_debian_13_behaves_the_same_when_probed() {
    assert_library_same_when_probed("trixie");
}

#[test]
fn glibc_of_debian_sid_behaves_the_same_when_probed() {
    assert_library_same_when_probed("sid");
}

#[test]
fn musl_behaves_the_same_when_probed() {
    assert_library_same_when_probed("musl");
}
