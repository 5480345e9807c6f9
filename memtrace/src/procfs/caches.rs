//! Sizes of the processor's caches.

use std::fs;

use crate::model::{Bytes, CacheSize};

/// Caches of the first processor (Documentation/ABI/testing/sysfs-devices-system-cpu).
const DIRECTORY: &str = "/sys/devices/system/cpu/cpu0/cache";

/// Returns the caches for data from level 2 on, the smallest level first; none if the kernel does not know them.
#[must_use]
pub(crate) fn data_caches() -> Vec<CacheSize> {
    let read = |index: u32, name: &str| fs::read_to_string(format!("{DIRECTORY}/index{index}/{name}")).ok();
    let cache = |index| cache(&read(index, "level")?, &read(index, "type")?, &read(index, "size")?);
    let mut caches: Vec<_> = (0..8).filter_map(cache).filter(|cache| cache.level >= 2).collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// Parses a cache: `2`, `Unified` and `1024K`. Returns `None` for a cache of instructions.
fn cache(level: &str, kind: &str, size: &str) -> Option<CacheSize> {
    let kibibytes: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
    let size = Bytes(kibibytes.checked_mul(1024)?);
    (kind.trim() != "Instruction").then_some(CacheSize { level: level.trim().parse().ok()?, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_instructions_are_left_out() {
        let l2 = CacheSize { level: 2, size: Bytes(1 << 20) };
        assert_eq!(cache("2\n", "Unified\n", "1024K\n"), Some(l2));
        assert_eq!(cache("2\n", "Instruction\n", "1024K\n"), None);
        assert_eq!(cache("x", "Data", "1K"), None);
        assert_eq!(cache("2", "Data", "1M"), None);
    }
}
