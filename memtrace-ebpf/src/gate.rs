//! Whether anything is to be done when a program is hit; and how maps are written.

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::gate as values;

use crate::process_filter;
use crate::thread::Thread;

/// One word: what programs do when they are hit ([`gate`]). Probes are placed before it is opened and removed after it
/// is closed, so that the books begin and end at one moment.
#[btf_map]
static GATE: Array<u64, 1> = Array::new();

/// Has a map take a value only where it has none yet (`BPF_NOEXIST`, include/uapi/linux/bpf.h).
pub const IF_NEW: u64 = 1;

/// What programs do now for the current process: one of [`gate`]'s.
#[inline(always)]
pub fn state() -> u64 {
    let gate = GATE.get(0).copied().unwrap_or(values::CLOSED);
    if gate == values::CLOSED || process_filter::traces(Thread::current().pid) { gate } else { values::CLOSED }
}

/// Whether events of the current process count now.
#[inline(always)]
pub fn is_open_for_current() -> bool {
    state() == values::OPEN
}

/// Whether events count now, of whomever.
#[inline(always)]
pub fn is_open() -> bool {
    GATE.get(0).is_some_and(|&gate| gate == values::OPEN)
}
