//! Sizes of the processor's caches and TLBs.

use memtrace_model::{Bytes, CacheSize};

use crate::procfs::kernel_files;

/// Caches of the first processor (Documentation/ABI/testing/sysfs-devices-system-cpu).
const DIRECTORY: &str = "/sys/devices/system/cpu/cpu0/cache";

/// Returns the caches for data from level 2 on, the smallest level first; no cache if the kernel does not list them.
#[must_use]
pub fn data_caches() -> Vec<CacheSize> {
    let read = |index: u32, name: &str| kernel_files::read_to_string(format!("{DIRECTORY}/index{index}/{name}")).ok();
    let cache = |index| cache(&read(index, "level")?, &read(index, "type")?, &read(index, "size")?);
    let mut caches: Vec<_> = (0..8).filter_map(cache).filter(|cache| cache.level >= 2).collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// Parses the level, type and size of a cache, such as `2`, `Unified` and `1024K`. Returns `None` for an instruction
/// cache.
fn cache(level: &str, kind: &str, size: &str) -> Option<CacheSize> {
    let kibibytes: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
    let size = Bytes(kibibytes.checked_mul(1024)?);
    (kind.trim() != "Instruction").then_some(CacheSize { level: level.trim().parse().ok()?, size })
}

/// Size in bytes of a small page. Only TLBs for small pages count.
#[cfg(target_arch = "x86_64")]
const SMALL_PAGE: u64 = 4096;

/// Returns the memory that the entries of the largest data TLB cover; `None` if the processor does not report its size.
#[must_use]
pub fn tlb_reach() -> Option<Bytes> {
    #[cfg(target_arch = "x86_64")]
    {
        let entries = amd_tlb_entries().or_else(intel_tlb_entries)?;
        Some(Bytes(entries * SMALL_PAGE))
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Returns the number of entries of the L2 data TLB for small pages (AMD64 Architecture Programmer's Manual, volume 3,
/// function 8000_0006h).
#[cfg(target_arch = "x86_64")]
fn amd_tlb_entries() -> Option<u64> {
    use std::arch::x86_64::__cpuid;
    const FUNCTION: u32 = 0x8000_0006;
    let entries = u64::from(__cpuid(FUNCTION).ebx >> 16 & 0xfff);
    (__cpuid(0x8000_0000).eax >= FUNCTION && entries > 0).then_some(entries)
}

/// Returns the number of entries of the largest data TLB for small pages (Intel 64 Software Developer's Manual, CPUID
/// leaf 18H).
#[cfg(target_arch = "x86_64")]
fn intel_tlb_entries() -> Option<u64> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const LEAF: u32 = 0x18;
    (__cpuid(0).eax >= LEAF).then_some(())?;
    let last = __cpuid_count(LEAF, 0).eax.min(64);
    let tlbs = (0..=last).map(|subleaf| __cpuid_count(LEAF, subleaf));
    tlbs.filter_map(|tlb| intel_tlb(tlb.ebx, tlb.ecx, tlb.edx)).max()
}

/// Returns the number of entries of a TLB; `None` for a TLB that has no data or no small pages.
#[cfg(target_arch = "x86_64")]
fn intel_tlb(ebx: u32, ecx: u32, edx: u32) -> Option<u64> {
    const DATA: u32 = 1;
    const UNIFIED: u32 = 3;
    let (ways, sets) = (u64::from(ebx >> 16), u64::from(ecx));
    (matches!(edx & 0x1f, DATA | UNIFIED) && ebx & 1 != 0).then_some(ways * sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn tlbs_for_data_and_small_pages_count() {
        // A unified TLB of 12 ways and 128 sets for pages of 4 KiB and 2 MiB, one for instructions, and one for 1 GiB.
        assert_eq!(intel_tlb(12 << 16 | 0b11, 128, 2 << 5 | 3), Some(1536));
        assert_eq!(intel_tlb(8 << 16 | 0b1, 16, 1 << 5 | 2), None);
        assert_eq!(intel_tlb(4 << 16 | 0b1000, 4, 2 << 5 | 3), None);
    }

    #[test]
    fn caches_of_instructions_are_left_out() {
        let l2 = CacheSize { level: 2, size: Bytes(1 << 20) };
        assert_eq!(cache("2\n", "Unified\n", "1024K\n"), Some(l2));
        assert_eq!(cache("2\n", "Instruction\n", "1024K\n"), None);
        assert_eq!(cache("x", "Data", "1K"), None);
        assert_eq!(cache("2", "Data", "1M"), None);
    }
}
