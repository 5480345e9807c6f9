//! Traces of a running Python, compared with `count_shim`.

use std::process::Command;

use memtrace_tests::{CountShim, Report, Scratch, Trace, Victim, VictimTotals};

/// The system's Python, which uses the system's C library.
const PYTHON: &str = "/usr/bin/python3";

const OBJECTS: u64 = 20_000;

/// Script that waits, builds a dict of a known number of lists, deletes a quarter of them, and
/// waits.
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

/// Starts Python with malloc as the allocator of all objects.
fn start(counts: Option<&CountShim>) -> Victim {
    let mut command = Command::new(PYTHON);
    command.args(["-S", "-c", PROGRAM]).env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
    if let Some(counts) = counts {
        command.envs(counts.environment());
    }
    let victim = Victim::start(&mut command);
    victim.wait_until_reading_stdin();
    victim
}

fn work(python: &mut Victim) {
    python.process().write_line("");
    assert_eq!(python.process().read_line(), "{}");
    python.wait_until_reading_stdin();
}

/// Asserts plausible totals. Each remaining list is two blocks: header and items.
fn assert_plausible(expected: &VictimTotals) {
    assert!(expected.totals.live_count >= OBJECTS / 4 * 3 * 2, "{expected:?}");
    assert!(expected.totals.free_count >= OBJECTS / 4 * 2, "{expected:?}");
}

/// Returns the notes of a report, except the note about the overhead, which depends on the machine.
fn notes_of(report: &Report) -> Vec<&str> {
    report.notes_of_target().into_iter().filter(|note| !note.starts_with("tracing took at least")).collect()
}

#[test]
fn running_python_matches_count_shim() {
    let scratch = Scratch::new();
    let counts = CountShim::create(&scratch);
    let mut victim = start(Some(&counts));
    let tracer = Trace::victim(&victim).start();
    counts.begin();
    work(&mut victim);
    let outcome = tracer.stop();
    let expected = counts.read();
    victim.finish();

    assert_plausible(&expected);
    let report = outcome.report();
    report.assert_equals(&expected);
    // count_shim is an allocator too. A call that passes through both allocators counts once.
    assert_eq!(notes_of(&report), [""; 0]);
}

#[test]
fn running_python_matches_an_untraced_run() {
    let scratch = Scratch::new();
    let counts = CountShim::create(&scratch);
    let mut other = start(Some(&counts));
    counts.begin();
    work(&mut other);
    let expected = counts.read();
    other.finish();

    let mut victim = start(None);
    let tracer = Trace::victim(&victim).start();
    work(&mut victim);
    let report = tracer.stop().report();
    victim.finish();

    assert_plausible(&expected);
    report.assert_equals(&expected);
    assert_eq!(notes_of(&report), [""; 0]);
    assert_eq!(
        report.processes[0].exe.as_deref(),
        std::fs::canonicalize(PYTHON).expect("python3 is installed").to_str()
    );
}
