//! A second signal ends memtrace, even if memtrace waits for something.

use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use memtrace_tests::process::Process;
use memtrace_tests::{Report, Scratch, Trace, Tracer, victim};

/// Time limit for the end of memtrace after two signals. It includes the half second between the signals, memtrace's own
/// limit of about five seconds, and a margin for a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// Sends signals to memtrace until it ends.
fn interrupt(process: &mut Process) {
    let start = Instant::now();
    while process.is_running() {
        process.signal(libc::SIGINT);
        thread::sleep(Duration::from_millis(100));
        assert!(start.elapsed() < SOON, "memtrace still runs");
    }
}

/// Waits for the process that reads names, and stops it.
fn stop_names(tracer: &mut Tracer) {
    let children = format!("/proc/{0}/task/{0}/children", tracer.process().pid());
    let start = Instant::now();
    let child = loop {
        let children = fs::read_to_string(&children).expect("memtrace runs");
        // Until the child has this name, it may still share memtrace's memory (vfork(2)).
        let reads_names = |child: &&str| {
            fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|comm| comm == "memtrace-names\n")
        };
        if let Some(child) = children.split_whitespace().find(reads_names) {
            break child.parse().expect("a pid");
        }
        assert!(start.elapsed() < SOON, "no process reads names");
    };
    // SAFETY: the call takes no pointer.
    assert_eq!(unsafe { libc::kill(child, libc::SIGSTOP) }, 0, "the process runs");
}

#[test]
fn report_that_nothing_reads_goes_to_a_rescue_file() {
    let (state, scratch) = (Scratch::new(), Scratch::new());
    let path = scratch.pipe("report.json");
    let pipe = OpenOptions::new().read(true).write(true).open(&path).expect("the pipe opens");
    // SAFETY: the call takes no pointer.
    assert!(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) } > 0);
    let mut victim = victim::start("exact");
    let trace = Trace::victim(&victim).option("-o").option(&path).environment("XDG_STATE_HOME", &*state);
    let mut tracer = trace.start();
    let expected = victim.work();
    interrupt(tracer.process());
    let outcome = tracer.wait();
    victim.finish();
    outcome.assert_code(1);
    assert!(outcome.stderr.contains("nothing reads it"), "{}", outcome.stderr);
    let rescued =
        fs::read_dir(&*state).expect("the directory exists").next().expect("a rescue file").expect("an entry");
    let text = fs::read_to_string(rescued.path()).expect("the rescue file is text");
    Report::read(&text).expect("it is a report").assert_equals(&expected);
    // The other outputs are written.
    outcome.report_with_code(1).assert_equals(&expected);
}

#[test]
fn names_are_skipped_if_their_process_hangs() {
    let mut victim = victim::start("exact");
    let mut tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    tracer.process().signal(libc::SIGINT);
    stop_names(&mut tracer);
    interrupt(tracer.process());
    let report = tracer.wait().report();
    victim.finish();
    report.assert_equals(&expected);
    let notes: Vec<_> = report.notes.iter().filter(|note| note.ends_with("(names_skipped)")).collect();
    // The names of one object may be read before the process is stopped.
    assert!(!notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn hangup_that_is_ignored_at_the_start_stays_ignored() {
    let mut victim = victim::start("exact");
    let ignoring = ["sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh"];
    let mut tracer = Trace::victim(&victim).wrapped_in(&ignoring).start();
    tracer.process().signal(libc::SIGHUP);
    let expected = victim.work();
    assert!(tracer.process().is_running());
    tracer.stop().report().assert_equals(&expected);
    victim.finish();
}
