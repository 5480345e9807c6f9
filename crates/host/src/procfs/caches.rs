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
/// functions 8000_0006h and 8000_0021h).
#[cfg(target_arch = "x86_64")]
fn amd_tlb_entries() -> Option<u64> {
    use std::arch::x86_64::__cpuid;
    const SIZES: u32 = 0x8000_0006;
    const FEATURES: u32 = 0x8000_0021;
    let last = __cpuid(0x8000_0000).eax;
    let features = if last >= FEATURES { __cpuid(FEATURES).eax } else { 0 };
    (last >= SIZES).then(|| amd_tlb(__cpuid(SIZES).ebx, features, family(__cpuid(1).eax)))?
}

/// Returns the number of entries of the L2 data TLB in `sizes`, EBX of the function 8000_0006h; `None` if there is no size.
/// `features`: EAX of the function 8000_0021h.
#[cfg(target_arch = "x86_64")]
fn amd_tlb(sizes: u32, features: u32, family: u32) -> Option<u64> {
    /// The sizes of L2 TLBs are in units of 32 entries (`L2TlbSizeX32`).
    const IN_UNITS: u32 = 1 << 14;
    const UNIT: u64 = 32;
    /// Family of Zen 5, the first with such sizes.
    const ZEN_5: u32 = 0x1a;
    /// Virtual machines can hide the bit. A number below this one is then a number of units: Zen 5 has 128, and QEMU's own
    /// description of a cache, in entries, has 512.
    const LEAST: u64 = 512;
    let number = u64::from(sizes >> 16 & 0xfff);
    let is_in_units = features & IN_UNITS != 0 || family >= ZEN_5 && number < LEAST;
    (number > 0).then_some(if is_in_units { number * UNIT } else { number })
}

/// Returns the family in EAX of the function 1.
#[cfg(target_arch = "x86_64")]
const fn family(signature: u32) -> u32 {
    let base = signature >> 8 & 0xf;
    if base == 0xf { base + (signature >> 20 & 0xff) } else { base }
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

/// Returns the number of entries of a TLB; `None` for a TLB that is not for data, or not for small pages.
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

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn sizes_of_new_tlbs_are_in_units() {
        const ZEN_4: u32 = family(0x00a6_0f12);
        const ZEN_5: u32 = family(0x00b4_0f40);
        assert_eq!([ZEN_4, ZEN_5], [0x19, 0x1a]);
        let size = |number: u32| 6 << 28 | number << 16 | 0x4000;
        assert_eq!(amd_tlb(size(3072), 0, ZEN_4), Some(3072));
        assert_eq!(amd_tlb(size(128), 1 << 14, ZEN_5), Some(4096));
        assert_eq!(amd_tlb(size(128), 0, ZEN_5), Some(4096), "a virtual machine hides the bit");
        assert_eq!(amd_tlb(size(512), 0, ZEN_5), Some(512), "QEMU does not use units");
        assert_eq!(amd_tlb(size(0), 0, ZEN_4), None);
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
