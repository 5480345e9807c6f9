//! Memory limit that a working set needs.

use super::process::{ProcessWorkingSet, ReferencedMemory};
use crate::memory::MappingKind;
use crate::units::Bytes;

/// Estimate of the lowest memory limit at which the processes run without paging.
///
/// The estimate takes the touched pages as the working set. Untouched file pages need no memory, because they can be
/// read again. All other untouched pages need memory unless there is swap. The estimate does not include memory of the
/// kernel, such as page tables and sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Memory that the processes need.
    pub needed: Bytes,
    /// True if pages without a file can be swapped out.
    pub has_swap: bool,
    /// Lowest `memory.high` of the process's cgroup and its ancestors; `None` if none is set, or for several processes.
    pub high: Option<Bytes>,
}

impl Fit {
    /// Returns the estimate for processes. `cache` is the touched page cache that no process has mapped.
    #[must_use]
    pub fn of(processes: &[ProcessWorkingSet], cache: Bytes, has_swap: bool, high: Option<Bytes>) -> Self {
        let kinds = processes.iter().flat_map(|process| &process.kinds);
        let needed: u64 = kinds.map(|(kind, memory)| needed(*kind, memory, has_swap)).sum();
        Self { needed: Bytes(needed.saturating_add(cache.0)), has_swap, high }
    }
}

/// Returns the needed bytes of a kind. Shared pages are divided by the number of processes that map them, as in the
/// PSS.
fn needed(kind: MappingKind, memory: &ReferencedMemory, has_swap: bool) -> u64 {
    let is_needed = if has_swap || kind == MappingKind::File { memory.referenced } else { memory.resident };
    let part = u128::from(is_needed.0) * u128::from(memory.pss.0);
    u64::try_from(part.checked_div(u128::from(memory.resident.0)).unwrap_or(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_memory_needs_swap_or_a_file() {
        let memory = ReferencedMemory {
            resident: Bytes(100 << 10),
            pss: Bytes(50 << 10),
            referenced: Bytes(40 << 10),
            ..ReferencedMemory::default()
        };
        assert_eq!(needed(MappingKind::File, &memory, false), 20 << 10);
        assert_eq!(needed(MappingKind::Heap, &memory, false), 50 << 10);
        assert_eq!(needed(MappingKind::Heap, &memory, true), 20 << 10);
        assert_eq!(needed(MappingKind::Heap, &ReferencedMemory::default(), true), 0);
    }
}
