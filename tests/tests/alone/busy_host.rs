//! Trace of every process of a busy host: no process fails that succeeds untraced, and the victims' totals are exact.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_tests::process::Process;
use memtrace_tests::redis::{self, Redis};
use memtrace_tests::report::ProcessReport;
use memtrace_tests::tracer::{DEFAULT_MEMORY_LIMIT, REPORT_MEMORY};
use memtrace_tests::{Scratch, Totals, Trace, Victim, VictimTotals, breakpoints, victim};

/// Duration of the trace.
const SPAN: Duration = Duration::from_secs(12);

/// Source for the C++ compiler.
const CPP: &str = "#include <map>\n#include <string>\n\
    int main(int count, char **words) {\n\
        std::map<std::string, int> seen;\n\
        for (int i = 0; i < count; i++) seen[words[i]]++;\n\
        return seen.size();\n\
    }\n";
/// Source for the C compiler.
const C: &str = "#include <stdio.h>\nint main(void) { return puts(\"hello\"); }\n";
/// Script for Python.
const SCRIPT: &str = "import json\nprint(sum(len(json.loads(json.dumps(list(range(n))))) for n in range(100)))";
/// Script that starts 25 processes in a burst.
const SPAWN: &str = "i=0; while [ $i -lt 25 ]; do /bin/true; i=$((i + 1)); done; echo $i";

/// Victims that run at the same time, with their arguments.
const VICTIMS: &[(&str, &[&str])] = &[
    ("exact", &[]),
    ("realloc", &[]),
    ("aligned", &[]),
    ("family.jemalloc", &["200"]),
    ("family.tcmalloc", &["200"]),
    ("family.mimalloc", &["200"]),
    ("operators", &["200", "0"]),
    ("victim-rust-jemalloc", &[]),
    ("victim-rust-own", &[]),
];

/// Arguments of a command that is run repeatedly.
type Words = Vec<OsString>;

fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(Into::into).into()
}

/// Returns the commands that keep the host busy, with the pause between two runs.
fn busy_commands(folder: &Path, socket: &Path) -> Vec<(Words, Duration)> {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("the scratch directory is writable");
        path.into_os_string()
    };
    let [c, cpp] = [file("c.c", C), file("cpp.cpp", CPP)];
    let compile = |compiler: &str, source: OsString, object: &str| {
        [words([compiler, "-O1", "-c"]), vec![source, "-o".into(), folder.join(object).into()]].concat()
    };
    let benchmark = "redis-benchmark -s \"$0\" -n 500 -r 1000 -t set,get,lpush -q > /dev/null";
    let pauses = [700, 400, 600, 400, 500].map(Duration::from_millis);
    let commands = [
        compile("g++", cpp, "cpp.o"),
        compile("gcc", c, "c.o"),
        words(["/usr/bin/python3", "-c", SCRIPT]),
        words(["sh", "-c", SPAWN]),
        [words(["sh", "-c", benchmark]), vec![socket.into()]].concat(),
    ];
    commands.into_iter().zip(pauses).collect()
}

/// Runs the command and returns its exit code and standard output.
fn run(command: &[OsString]) -> (Option<i32>, Vec<u8>) {
    let output = Command::new(&command[0]).args(&command[1..]).stdin(Stdio::null()).output().expect("it is installed");
    (output.status.code(), output.stdout)
}

/// Runs the command repeatedly until `stop` is set, and asserts the exit code and output of each run. Returns the
/// number of runs.
fn repeat(command: &Words, expected: &(Option<i32>, Vec<u8>), pause: Duration, stop: &AtomicBool) -> u32 {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        assert_eq!(&run(command), expected, "{command:?}");
        rounds += 1;
        thread::sleep(pause);
    }
    rounds
}

#[test]
fn busy_host_is_undisturbed_and_totals_are_exact() {
    let scratch = Scratch::new();
    let socket = redis::socket_in(&scratch);
    let [server, arguments @ ..] = &redis::command(&socket)[..] else { panic!("the command is empty") };
    let mut server = Process::start(Command::new(server).args(arguments));
    let redis = Redis::connect(&socket);

    let commands = busy_commands(&scratch, &socket);
    let untraced: Vec<_> = commands.iter().map(|(command, _)| run(command)).collect();
    assert!(untraced.iter().all(|(code, _)| *code == Some(0)), "{untraced:?}");

    let mut victims: Vec<_> = VICTIMS.iter().map(|(name, arguments)| victim::start_with(name, arguments)).collect();
    let tracer = Trace::system_wide().start();
    let stop = AtomicBool::new(false);
    let (rounds, expected, short_lived) = thread::scope(|scope| {
        let running: Vec<_> = commands
            .iter()
            .zip(&untraced)
            .map(|((command, pause), expected)| scope.spawn(|| repeat(command, expected, *pause, &stop)))
            .collect();
        let start = Instant::now();
        let mut expected = Vec::new();
        let mut short_lived = Vec::new();
        for victim in &mut victims {
            expected.push(victim.work());
            let child =
                Command::new(victim::path("short_lived")).stdout(Stdio::piped()).spawn().expect("the victim is built");
            let output = child.wait_with_output().expect("the victim exits");
            let totals: VictimTotals = serde_json::from_slice(&output.stdout).expect("the totals are valid JSON");
            short_lived.push(totals);
            thread::sleep((SPAN / VICTIMS.len() as u32).saturating_sub(Duration::from_millis(100)));
        }
        thread::sleep(SPAN.saturating_sub(start.elapsed()));
        stop.store(true, Ordering::Relaxed);
        let rounds: Vec<u32> = running.into_iter().map(|one| one.join().expect("no thread panicked")).collect();
        (rounds, expected, short_lived)
    });
    let peak = tracer.peak_rss();
    let outcome = tracer.stop();
    for victim in &victims {
        breakpoints::wait_until_removed(victim.pid());
    }
    breakpoints::wait_until_removed(server.pid());
    redis.shut_down();
    assert!(server.wait().success());
    assert!(rounds.iter().all(|&rounds| rounds > 0), "{rounds:?}");

    // A process may map an allocator that no process mapped before. This counts as a loss.
    let report = outcome.report_with_code(outcome.code.filter(|code| *code == 20).unwrap_or(0));
    let lost: BTreeMap<_, _> = report.losses.iter().filter(|(_, count)| **count > 0).collect();
    assert_eq!(outcome.code == Some(20), !lost.is_empty(), "{lost:?}: {}", outcome.stderr);
    report.assert_consistent();
    for ((victim, expected), (name, _)) in victims.iter().zip(&expected).zip(VICTIMS) {
        let entries = report.entries_of(victim.pid());
        let [entry] = &entries[..] else { panic!("{name} does not have one entry: {entries:?}; lost: {lost:?}") };
        assert_eq!(entry.totals, expected.totals, "{name}; lost: {lost:?}");
        assert_eq!(entry.unmatched_frees, expected.unmatched_frees, "{name}; lost: {lost:?}");
    }
    // Small processes can be part of a group.
    let ended: Vec<_> = report.processes.iter().filter(|process| process.comm == "short_lived").collect();
    let number_of = |processes: &[&ProcessReport]| processes.iter().map(|row| row.runs()).sum::<u64>();
    assert_eq!(number_of(&ended), short_lived.len() as u64, "{ended:?}; lost: {lost:?}");
    let expected: Totals = short_lived.iter().map(|victim| victim.totals.at_exit()).sum();
    assert_eq!(ended.iter().map(|row| row.totals).sum::<Totals>(), expected, "lost: {lost:?}");
    let processes = number_of(&report.processes.iter().collect::<Vec<_>>());
    assert!(processes > 200, "{processes}");
    assert!(peak <= DEFAULT_MEMORY_LIMIT, "{peak} bytes");
    let with_report = report.cost.as_ref().expect("the trace has ended").peak_rss_bytes;
    assert!(with_report <= DEFAULT_MEMORY_LIMIT + REPORT_MEMORY, "{with_report} bytes");
    victims.into_iter().for_each(Victim::finish);
}
