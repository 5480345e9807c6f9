//! Maps that more than one module reads. A map that one module owns is declared there.

use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::gate;

/// One word: what programs do when they are hit ([`gate`]). Probes are placed before it is opened and removed after it
/// is closed, so that the books begin and end at one moment.
#[btf_map]
static GATE: Array<u64, 1> = Array::new();

/// The processes whose exec and exit matter.
#[btf_map]
static TARGETS: HashMap<u32, u32, 16384> = HashMap::new();

/// What programs do now: one of [`gate`]'s.
#[inline(always)]
pub fn gate() -> u64 {
    GATE.get(0).copied().unwrap_or(gate::CLOSED)
}

/// Whether events count now.
#[inline(always)]
pub fn gate_open() -> bool {
    gate() == gate::OPEN
}

/// Whether `pid` is traced.
#[inline(always)]
pub fn is_target(pid: u32) -> bool {
    // SAFETY: the value is not read, only its presence.
    unsafe { TARGETS.get(&pid) }.is_some()
}
