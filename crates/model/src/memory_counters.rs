//! Memory by type, as the kernel counts it for a control group or for the machine.

use crate::Bytes;

/// Memory by type, as the kernel counts it for a control group (`memory.stat`) or for the machine (`/proc/meminfo`). A value
/// is `None` if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// Anonymous memory of processes.
    pub anonymous: Option<Bytes>,
    /// Page cache, which includes `shmem`.
    pub file: Option<Bytes>,
    /// Shared memory: files of tmpfs, memfds, System V segments and shared anonymous mappings.
    pub shmem: Option<Bytes>,
    /// Part of `file` that at least one process maps.
    pub mapped: Option<Bytes>,
    /// Part of `file` that is not on disk yet: modified pages, and pages that are being written.
    pub dirty: Option<Bytes>,
    /// Swapped-out memory.
    pub swap: Option<Bytes>,
    /// Memory of the kernel itself.
    pub kernel: KernelMemory,
}

/// Memory of the kernel itself by use. A value is `None` if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelMemory {
    /// Sum of all uses except `sockets`. It may include uses that are not listed here.
    pub total: Option<Bytes>,
    /// Slab memory that the kernel can reclaim, such as cached directory entries and inodes.
    pub slab_reclaimable: Option<Bytes>,
    /// Slab memory that the kernel cannot reclaim.
    pub slab_unreclaimable: Option<Bytes>,
    /// Kernel stacks of threads.
    pub stacks: Option<Bytes>,
    /// Page tables.
    pub page_tables: Option<Bytes>,
    /// Buffers of sockets.
    pub sockets: Option<Bytes>,
    /// Data with a copy for each processor.
    pub per_cpu: Option<Bytes>,
    /// Memory that was mapped for the kernel by vmalloc.
    pub vmalloc: Option<Bytes>,
    /// Compressed pages of swapped-out memory (zswap).
    pub zswap: Option<Bytes>,
}

impl MemoryCounters {
    /// Returns the page cache that no process maps: files that were read or written, and files of tmpfs.
    #[must_use]
    pub fn unmapped(&self) -> Option<Bytes> {
        Some(Bytes(self.file?.0.saturating_sub(self.mapped?.0)))
    }

    /// Returns a lower and an upper bound of the shared memory that no process maps. The kernel counts mapped pages of the
    /// whole page cache, but not of shared memory alone.
    #[must_use]
    pub fn unmapped_shmem(&self) -> Option<(Bytes, Bytes)> {
        let shmem = self.shmem?;
        let most = shmem.min(self.unmapped()?);
        let least = Bytes(shmem.0.saturating_sub(self.mapped?.0));
        // The kernel updates its counters one after the other, so they may contradict each other.
        Some((least.min(most), most))
    }

    /// Returns the page cache that the kernel can drop without writing it: unmodified pages of files on disk.
    #[must_use]
    pub fn clean(&self) -> Option<Bytes> {
        Some(Bytes(self.file?.0.saturating_sub(self.shmem?.0).saturating_sub(self.dirty?.0)))
    }
}

impl KernelMemory {
    /// Returns the total plus the buffers of sockets. If the total is not known, returns the sum of the known uses.
    #[must_use]
    pub fn sum(&self) -> Option<Bytes> {
        let without_sockets = [
            self.slab_reclaimable,
            self.slab_unreclaimable,
            self.stacks,
            self.page_tables,
            self.per_cpu,
            self.vmalloc,
            self.zswap,
        ];
        let add = |one: Bytes, other: Bytes| Bytes(one.0.saturating_add(other.0));
        let total = self.total.or_else(|| without_sockets.into_iter().flatten().reduce(add));
        // The kernel charges buffers of sockets as pages, not as kernel memory (`mem_cgroup_charge_skmem`, mm/memcontrol.c).
        total.into_iter().chain(self.sockets).reduce(add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counters(file: u64, shmem: u64, mapped: u64) -> MemoryCounters {
        MemoryCounters {
            anonymous: None,
            file: Some(Bytes(file)),
            shmem: Some(Bytes(shmem)),
            mapped: Some(Bytes(mapped)),
            dirty: Some(Bytes(5)),
            swap: None,
            kernel: KernelMemory {
                total: None,
                slab_reclaimable: Some(Bytes(3)),
                slab_unreclaimable: None,
                stacks: Some(Bytes(4)),
                page_tables: None,
                sockets: None,
                per_cpu: None,
                vmalloc: None,
                zswap: None,
            },
        }
    }

    #[test]
    fn unmapped_shared_memory_has_bounds() {
        let bounds = |file, shmem, mapped| counters(file, shmem, mapped).unmapped_shmem();
        assert_eq!(bounds(100, 60, 0), Some((Bytes(60), Bytes(60))), "nothing is mapped");
        assert_eq!(bounds(100, 60, 20), Some((Bytes(40), Bytes(60))));
        assert_eq!(bounds(100, 60, 70), Some((Bytes(0), Bytes(30))), "most of the page cache is mapped");
        assert_eq!(bounds(100, 60, 110), Some((Bytes(0), Bytes(0))));
        assert_eq!(bounds(100, 120, 0), Some((Bytes(100), Bytes(100))));
        assert_eq!(MemoryCounters::default().unmapped_shmem(), None);
    }

    #[test]
    fn clean_page_cache_excludes_shared_and_modified_pages() {
        assert_eq!(counters(100, 60, 20).clean(), Some(Bytes(35)));
        assert_eq!(counters(100, 99, 20).clean(), Some(Bytes(0)));
        assert_eq!(counters(100, 60, 20).unmapped(), Some(Bytes(80)));
    }

    #[test]
    fn kernel_memory_without_a_total_is_the_sum_of_its_parts() {
        let kernel = counters(0, 0, 0).kernel;
        assert_eq!(kernel.sum(), Some(Bytes(7)));
        assert_eq!(KernelMemory { total: Some(Bytes(9)), ..kernel }.sum(), Some(Bytes(9)));
        assert_eq!(KernelMemory::default().sum(), None);
    }

    #[test]
    fn buffers_of_sockets_are_not_in_the_total_of_the_kernel() {
        let kernel = KernelMemory { sockets: Some(Bytes(20)), zswap: Some(Bytes(1)), ..counters(0, 0, 0).kernel };
        assert_eq!(kernel.sum(), Some(Bytes(28)));
        assert_eq!(KernelMemory { total: Some(Bytes(9)), ..kernel }.sum(), Some(Bytes(29)));
        let alone = KernelMemory { sockets: Some(Bytes(20)), ..KernelMemory::default() };
        assert_eq!(alone.sum(), Some(Bytes(20)));
    }
}
