//! Capabilities of memtrace in each phase of a run. The guide has a table of these capabilities and their purposes. A test
//! compares the table with a run.

use std::panic::resume_unwind;
use std::thread;

use memtrace_host::kernel::RingReader;
use memtrace_host::privileges::{self, CapabilitySet};
use memtrace_host::procfs;

/// Capabilities to read the debug files of processes, to name stacks, and to write outputs: with the owner and mode of an
/// earlier file, and into directories of other users.
const REPORTING: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_PTRACE)
    // For the process that reads names: it changes its user, gives up its bounding set, and is killed if it hangs.
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETUID);

/// Capabilities to load BPF programs, to attach probes, and to read processes.
pub(crate) const TRACING: CapabilitySet = REPORTING
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE);

/// Keeps the capabilities that tracing needs. A command that memtrace has started keeps its own. Call this before the
/// first thread starts.
pub(crate) fn keep_for_tracing() {
    procfs::end_reader();
    warn_if_kept(privileges::keep_capabilities(TRACING).and_then(|()| privileges::refuse_new_privileges()));
}

/// Keeps the capabilities that this thread needs to name stacks and to write outputs.
pub(crate) fn keep_for_reports() {
    procfs::end_reader();
    warn_if_kept(privileges::keep_capabilities(REPORTING).and_then(|()| privileges::refuse_new_privileges()));
}

/// Calls `work` in a thread that keeps only the capabilities for reports. Threads that `work` starts inherit this limit.
pub(crate) fn with_those_for_reports<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let limited = || {
        keep_for_reports();
        work()
    };
    thread::scope(|scope| scope.spawn(limited).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Forbids core dumps, and reads of memtrace's memory by other processes of its user. Most files of memtrace in procfs then
/// belong to root, so call this after the last write to one of them.
pub(crate) fn forbid_dumps() {
    warn_if_kept(privileges::forbid_dumps());
}

fn warn_if_kept(result: std::io::Result<()>) {
    if let Err(error) = result {
        log::warn!("memtrace has more privileges than it needs, because it cannot give them up: {error}");
    }
}

/// Returns a note if the threads that read events could not raise their priority.
pub(crate) fn priority_note() -> Option<&'static str> {
    (!RingReader::has_priority()).then_some(
        "the threads that read events have no higher priority than others, since CAP_SYS_NICE is missing: on a busy machine \
         events can be lost",
    )
}
