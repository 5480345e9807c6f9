//! A program that nobody here wrote, attached while it runs, and compared with a second source.

use std::process::Command;

use memtrace_tests::{Counts, Scratch, Trace, Victim};

/// The system's own Python, which uses the system's own C library.
const PYTHON: &str = "/usr/bin/python3";

const OBJECTS: u64 = 20_000;

/// Waits, builds a dict of a known number of lists, drops a quarter of them, and waits.
const PROGRAM: &str = "
import os
os.write(1, b'ready %d\\n' % os.getpid())
os.read(0, 1)
table = {number: [number] for number in range(20000)}
for number in range(0, 20000, 4):
    del table[number]
os.write(1, b'{}\\n')
os.read(0, 1)
os._exit(0)
";

#[test]
fn a_running_python_equals_the_calls_that_were_made() {
    let scratch = Scratch::new();
    let counts = Counts::create(&scratch);
    let mut command = Command::new(PYTHON);
    command.args(["-S", "-c", PROGRAM]).env("PYTHONMALLOC", "malloc").envs(counts.environment());
    let mut python = Victim::run(&mut command);

    let tracer = Trace::of(&python).start();
    counts.begin();
    python.process().tell("");
    assert_eq!(python.process().line(), "{}");
    let outcome = tracer.stop();
    let books = counts.read();
    python.finish();

    let report = outcome.report();
    report.assert_equals(&books);
    assert_eq!(report.processes[0].exe.as_deref(), std::fs::canonicalize(PYTHON).expect("it runs").to_str());
    // Of each list that is left, its head and its items.
    assert!(report.totals.live_count >= OBJECTS / 4 * 3 * 2, "{:?}", report.totals);
    assert!(report.totals.free_count >= OBJECTS / 4 * 2, "{:?}", report.totals);
}
