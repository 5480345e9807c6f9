//! Instructions at which the stub of a patched process reports samples.

use memtrace_host::kernel::{SampleReport, SampledSite};
use memtrace_model::{AllocatorId, ArgumentLocation, ArgumentPlace, FileOffset};
use memtrace_object::overlay::layout::{AT_BLOCK, AT_INTERVAL, AT_SIZE, DRAWS, ROUTINES, StubHeader};

/// DWARF number of the register with the first argument (rdi).
const FIRST_ARGUMENT: u8 = 5;

/// Returns the instructions at which a stub reports samples, with the frees first, so that whenever the allocation of a block is
/// seen, its free is seen too. Returns `None` if the header, which is in a file of the target, has places outside of the stub's
/// code.
pub(crate) fn sites_of_stub(header: &StubHeader, allocator: AllocatorId) -> Option<Vec<SampledSite>> {
    let block = ArgumentPlace::word(ArgumentLocation::Register(FIRST_ARGUMENT));
    let alloc = SampleReport::PatchedAlloc { block: AT_BLOCK, size: AT_SIZE, interval: AT_INTERVAL };
    let reports = [
        (header.free_probe, SampleReport::Free { block }),
        (header.tentative_probe, SampleReport::Tentative { block }),
        (header.undo_probe, SampleReport::Undo { block }),
        (header.alloc_probe, alloc),
    ];
    let site = |(offset, report)| {
        let offset = u64::from(offset);
        let is_code = (ROUTINES..DRAWS).contains(&offset);
        is_code.then_some(SampledSite { offset: FileOffset(offset), semaphore: None, report, allocator })
    };
    reports.into_iter().map(site).collect()
}

#[cfg(test)]
mod tests {
    use memtrace_object::overlay::layout::MAGIC;

    use super::*;

    fn header(alloc_probe: u32, undo_probe: u32) -> StubHeader {
        StubHeader {
            magic: MAGIC,
            base: 0x7000_0000_0000,
            sites: 1,
            code_end: 0x1800,
            free_probe: 0x1200,
            tentative_probe: 0x1202,
            undo_probe,
            alloc_probe,
            checksum: 0,
            reserved: [0; 2],
        }
    }

    #[test]
    fn frees_are_attached_before_allocations() {
        let sites = sites_of_stub(&header(0x1000, 0x1204), AllocatorId(7)).unwrap();
        assert!(sites.iter().all(|site| site.semaphore.is_none() && site.allocator == AllocatorId(7)));
        let offsets: Vec<_> = sites.iter().map(|site| site.offset.0).collect();
        assert_eq!(offsets, [0x1200, 0x1202, 0x1204, 0x1000]);
        // The three words are in the red zone below the stack pointer.
        let alloc = SampleReport::PatchedAlloc { block: -104, size: -112, interval: -120 };
        let rdi = ArgumentPlace::word(ArgumentLocation::Register(5));
        assert_eq!((sites[3].report, sites[0].report), (alloc, SampleReport::Free { block: rdi }));
    }

    #[test]
    fn places_outside_of_the_code_are_refused() {
        for (alloc, undo) in [(0, 0x1204), (0xfff, 0x1204), (0x1000, 0x5000), (0x1000, u32::MAX)] {
            assert_eq!(sites_of_stub(&header(alloc, undo), AllocatorId::UNKNOWN), None, "{alloc:#x} {undo:#x}");
        }
    }
}
