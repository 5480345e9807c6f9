//! Memory limit that a working set needs.

use super::distinct::{DistinctMemory, DistinctPages};
use crate::memory::MappingKind;
use crate::units::Bytes;

/// Estimate of the lowest memory limit that lets the processes run without paging.
///
/// The estimate takes the touched pages as the working set. Untouched file pages need no memory, because they can be read
/// again. All other untouched pages need memory unless there is swap. Pages that are shared with other processes count in full:
/// the cgroup that first touched a page is charged for it. The estimate does not include memory of the kernel, such as page
/// tables and sockets.
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
    /// Returns the estimate for processes. `memory`: memory of all processes together. `cache`: touched page cache that no
    /// process has mapped.
    #[must_use]
    pub fn of(memory: &DistinctMemory, cache: Bytes, has_swap: bool, high: Option<Bytes>) -> Self {
        let needed: u64 = memory.kinds.iter().map(|(kind, pages)| needed(*kind, *pages, has_swap).0).sum();
        Self { needed: Bytes(needed.saturating_add(cache.0)), has_swap, high }
    }
}

/// Returns the needed bytes of a kind.
fn needed(kind: MappingKind, pages: DistinctPages, has_swap: bool) -> Bytes {
    if has_swap || kind == MappingKind::File { pages.referenced } else { pages.resident }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_memory_needs_swap_or_a_file() {
        let pages = DistinctPages { resident: Bytes(100), referenced: Bytes(40), least_referenced: Bytes(30) };
        let memory = DistinctMemory { kinds: vec![(MappingKind::Heap, pages), (MappingKind::File, pages)] };
        let needed = |has_swap| Fit::of(&memory, Bytes(7), has_swap, None).needed;
        assert_eq!([false, true].map(needed), [Bytes(147), Bytes(87)]);
        assert_eq!(Fit::of(&DistinctMemory::default(), Bytes(0), true, None).needed, Bytes(0));
    }
}
