//! The recording gate: programs that run while it is closed do nothing.

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::{decision, gate as values};

use crate::thread::Thread;
use crate::{loss, process_filter, settings};

/// State of the gate: a constant of [`values`]. Probes are attached before the gate opens and detached after it
/// closes, so that accounting starts and ends for all programs at once.
#[btf_map]
static GATE: Array<u64, 1> = Array::new();

/// Returns the state of the gate for `thread`: closed if the process of the thread is not traced.
#[inline(always)]
pub fn of(thread: Thread) -> u64 {
    let gate = GATE.get(0).copied().unwrap_or(values::CLOSED);
    if gate == values::CLOSED || process_filter::is_traced(thread.pid) { gate } else { values::CLOSED }
}

/// Returns true if events of the current process are recorded now.
#[inline(always)]
pub fn is_open_for_current() -> bool {
    of(Thread::current()) == values::OPEN
}

/// Counts a hit of a probe of spans or marks in the current process. Returns true if events of the process are recorded
/// now. Hits before the recording count too, because user space estimates the overhead from them.
#[inline(always)]
pub fn count_hit_for_current() -> bool {
    let state = of(Thread::current());
    if state != values::CLOSED {
        loss::other_hit();
    }
    state == values::OPEN
}

/// Returns true if the usage of threads is counted now.
#[inline(always)]
pub fn is_counting() -> bool {
    GATE.get(0).is_some_and(|&gate| gate == values::COUNTING)
}

/// Returns true if the usage of the current process is counted now. In the mode `LISTED`, the probes are attached to
/// the listed processes only, so no look-up is needed.
#[inline(always)]
pub fn is_counting_for_current() -> bool {
    let is_listed = || settings::filter_mode() == memtrace_common::wire::filter_mode::LISTED;
    is_counting() && (is_listed() || process_filter::is_traced(Thread::current().pid))
}

/// Kinds of events that are recorded now for a process.
#[derive(Clone, Copy)]
pub struct Recorded {
    flags: u32,
}

impl Recorded {
    /// Returns true if allocations and new mappings are recorded.
    #[inline(always)]
    pub fn allocations(self) -> bool {
        self.flags & decision::TRACED != 0
    }

    /// Returns true if frees and unmaps are recorded. A process that is no longer traced may free recorded blocks.
    #[inline(always)]
    pub fn frees(self) -> bool {
        self.flags & (decision::TRACED | decision::RECORDED) != 0
    }
}

/// Returns the kinds of events that are recorded now for the process of the current thread, `thread`.
#[inline(always)]
pub fn recorded(thread: Thread) -> Recorded {
    Recorded { flags: if is_open() { process_filter::flags(thread.pid) } else { 0 } }
}

/// Returns true if events are recorded now, even if the current process is not traced.
#[inline(always)]
pub fn is_open() -> bool {
    GATE.get(0).is_some_and(|&gate| gate == values::OPEN)
}
