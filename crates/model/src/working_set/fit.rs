//! Memory limit that a working set needs.

use super::process::{ProcessWorkingSet, ReferencedMemory};
use crate::memory::MappingKind;
use crate::units::Bytes;

/// Estimate of the lowest memory limit with which processes do not page.
///
/// It takes the touched pages for the working set. Pages of files that were not touched can be read again, so they need no memory.
/// Others can only leave memory for swap. Memory of the kernel, such as page tables and sockets, is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Needed memory.
    pub needed: Bytes,
    /// Pages that are not of files can be swapped out.
    pub has_swap: bool,
    /// Lowest `memory.high` of the cgroups of the process; `None` for none, or for several processes.
    pub high: Option<Bytes>,
}

impl Fit {
    /// Returns the estimate for processes, and for `cache`, touched page cache that none of them has mapped.
    #[must_use]
    pub fn of(processes: &[ProcessWorkingSet], cache: Bytes, has_swap: bool, high: Option<Bytes>) -> Self {
        let kinds = processes.iter().flat_map(|process| &process.kinds);
        let needed: u64 = kinds.map(|(kind, memory)| needed(*kind, memory, has_swap)).sum();
        Self { needed: Bytes(needed.saturating_add(cache.0)), has_swap, high }
    }
}

/// Returns the needed bytes of a kind, with shared pages divided among their processes.
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
