//! Deaths of memtrace or of its patcher at chosen steps of attach and detach: each target runs on, and the next trace works.
//!
//! A test build has *fault points*, at which the patcher kills itself or memtrace if the environment says so.

mod long;

use std::cell::Cell;

use memtrace_tests::patch_zoo::{self, Target as ZooTarget};

use super::*;

/// Environment variable with the name of a fault point, and the number of the hit at which it acts: `SiteWritten:2`.
const POINT: &str = "MEMTRACE_FAULT_POINT";

/// Environment variable that says that the patcher kills memtrace instead of itself.
const KILLED: &str = "MEMTRACE_FAULT_TARGET";

/// Message of memtrace about the death of its patcher.
const FAILED: &str = "memtrace-patcher failed";

/// Options of a trace of busy targets.
const SAMPLES: &[&str] = &["--sample-interval", "4MiB", "--allow-patching"];

/// Time of a fault point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Attach,
    Detach,
}

/// A fault point, and its phase.
type Fault = (&'static str, Phase);

/// Fault points of the patcher, in the order of their first hits. A system call in the target has two stops, and there are four calls.
const FAULTS: &[Fault] = &[
    ("Seized", Phase::Attach),
    ("Interrupted", Phase::Attach),
    ("Stopped", Phase::Attach),
    ("RegistersRead", Phase::Attach),
    ("FrameWritten", Phase::Attach),
    ("BeforeSetRegs", Phase::Attach),
    ("AfterSetRegs", Phase::Attach),
    ("AfterMask", Phase::Attach),
    ("SyscallEntry", Phase::Attach),
    ("SyscallExit", Phase::Attach),
    ("MemfdOpened", Phase::Attach),
    ("ImageWritten", Phase::Attach),
    ("BeforeSetRegs:2", Phase::Attach),
    ("AfterSetRegs:2", Phase::Attach),
    ("SyscallEntry:2", Phase::Attach),
    ("SyscallExit:2", Phase::Attach),
    ("ControlWritten", Phase::Attach),
    ("BeforeSetRegs:3", Phase::Attach),
    ("AfterSetRegs:3", Phase::Attach),
    ("SyscallEntry:3", Phase::Attach),
    ("SyscallExit:3", Phase::Attach),
    ("BeforeSetRegs:4", Phase::Attach),
    ("AfterSetRegs:4", Phase::Attach),
    ("SyscallEntry:4", Phase::Attach),
    ("SyscallExit:4", Phase::Attach),
    ("Unmasked", Phase::Attach),
    ("RegsRestored", Phase::Attach),
    ("Continued", Phase::Attach),
    ("DetachedA", Phase::Attach),
    ("AllSeized", Phase::Attach),
    ("AllStopped", Phase::Attach),
    ("Cleared", Phase::Attach),
    ("SiteWritten", Phase::Attach),
    ("SiteWritten:2", Phase::Attach),
    ("SiteWritten:4", Phase::Attach),
    ("Released", Phase::Attach),
    ("DisableStopped", Phase::Detach),
    // A new patcher makes two more attempts, and dies after the next site in each. Four functions are patched at least.
    ("SiteRestored", Phase::Detach),
];

/// Fault points of the short tier: in a system call of the target, and with some sites changed.
const SHORT: [Fault; 4] = [
    ("AfterSetRegs", Phase::Attach),
    ("SyscallEntry:3", Phase::Attach),
    ("SiteWritten:2", Phase::Attach),
    ("SiteRestored", Phase::Detach),
];

/// Process that dies at a fault point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    Patcher,
    Memtrace,
}

/// Traces the target until the fault, and ends the trace. The patcher must have been killed, or memtrace.
fn die(target: &mut ZooTarget, (point, phase): Fault, killed: Killed) {
    // The optimised program has no fault points.
    let trace = Trace::pids(&[target.pid()]).binary(&victim::binaries().join("memtrace")).options(SAMPLES);
    let trace = trace.option("-vv").environment(POINT, point);
    let trace = if killed == Killed::Memtrace { trace.environment(KILLED, "memtrace") } else { trace };
    let mut tracer = trace.start_without_waiting();
    let (has_attached, has_failed) = (Cell::new(false), Cell::new(false));
    // memtrace starts another patcher after the death of one. At the same point, it dies, too.
    tracer.process().wait_for_stderr(|line| {
        has_attached.set(has_attached.get() || line.starts_with("attached"));
        has_failed.set(has_failed.get() || line.contains(FAILED));
        has_attached.get() || has_failed.get()
    });
    if killed == Killed::Patcher && phase == Phase::Attach {
        assert!(has_failed.get(), "the patcher did not die at {point} in {}", target.name());
    }
    // The kill of memtrace may be on its way.
    tracer.process().signal(libc::SIGINT);
    let outcome = tracer.wait();
    let context = format!("{} at {point}, {killed:?}: {:?} {}", target.name(), outcome.code, outcome.stderr);
    match killed {
        Killed::Memtrace => assert_eq!(outcome.code, None, "{context}"),
        Killed::Patcher => assert!(outcome.code.is_some() && outcome.stderr.contains(FAILED), "{context}"),
    }
    if phase == Phase::Detach {
        assert!(has_attached.get(), "{context}");
    }
    target.assert_progress();
}

/// Traces the target from attach to detach.
fn attach_and_detach(target: &ZooTarget) {
    // If memtrace was killed, its patcher finishes its work.
    wait_until_untraced(target.pid());
    let tracer = Trace::pids(&[target.pid()]).options(SAMPLES).start();
    assert!(patches(target.pid()).len() >= 4, "{} is not patched", target.name());
    tracer.stop().report().assert_consistent();
    target.assert_restored();
}

/// Lets the patcher or memtrace die at fault points. Each time, a new target is patched and restored afterwards: in a target with a
/// stub, the patcher makes no system calls.
fn assert_survival(start: impl Fn() -> ZooTarget, faults: &[Fault], killed: Killed) {
    for &fault in faults {
        let mut target = start();
        die(&mut target, fault, killed);
        attach_and_detach(&target);
        target.assert_progress();
    }
}

#[test]
fn targets_survive_the_death_of_the_patcher() {
    assert_survival(patch_zoo::with_threads, &SHORT, Killed::Patcher);
}

#[test]
fn targets_survive_the_death_of_memtrace() {
    assert_survival(patch_zoo::with_threads, &SHORT, Killed::Memtrace);
}
