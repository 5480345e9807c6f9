//! Division of a limited memory among maps, rings and ledgers.

use crate::kernel::MapSizes;
use crate::model::{Bytes, Pid};
use crate::procfs;
use crate::session::config::Config;
use crate::session::error::Error;

/// Sizes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemorySizes {
    pub(super) maps: MapSizes,
    pub(super) ring_size: Bytes,
    /// Maximum number of live blocks of all shards.
    pub(super) live: u64,
    /// Maximum number of stacks of each shard.
    pub(super) stacks: u32,
}

/// memtrace without maps, rings and ledgers: its program, the kernel's descriptions of types, and symbols.
const PROGRAM: u64 = 20 << 20;

/// Shares of the remaining memory, one in these numbers. They add up to the whole.
const MAPS: u64 = 4;
const RINGS: u64 = 4;
const LIVE_BLOCKS: u64 = 4;
const STACKS: u64 = 8;
const UNWIND_ROWS: u64 = 8;

/// Memory of a live block, of a stack with its totals, and of a map of unwind rows.
const BLOCK: u64 = 80;
const STACK: u64 = 512;
const ROWS: u64 = 1 << 20;

/// Smallest ring that absorbs a burst of some thousand events.
const SMALLEST_RING: u64 = 1 << 18;

/// The most stacks in each shard.
const MAX_STACKS: u32 = 1 << 20;

/// Limit of a cgroup below which memtrace adapts to it.
const LOW_LIMIT: Bytes = Bytes(512 << 20);

/// Returns the sizes for `config` with `rings` rings, and a note for the user if they are limited.
///
/// # Errors
///
/// [`Error::Memory`] if the smallest sizes exceed the limit.
pub(super) fn sizes(config: &Config, rings: u32) -> Result<(MemorySizes, Option<String>), Error> {
    let own = config.memory_limit.is_none().then(own_limit).flatten();
    let full =
        MemorySizes { maps: MapSizes::FULL, ring_size: config.ring_size, live: config.max_live, stacks: MAX_STACKS };
    let Some(limit) = config.memory_limit.or(own) else { return Ok((full, None)) };
    let Some(sizes) = within(limit, rings, full) else {
        return Err(Error::Memory { limit, required: smallest(rings), is_option: own.is_none() });
    };
    let reason = match own {
        Some(_) => "this memory cgroup leaves",
        None => "--memory-limit allows",
    };
    let note = format!(
        "{reason} {limit}: the rings have {} each, and at most {} live blocks are kept",
        sizes.ring_size, sizes.live
    );
    Ok((sizes, Some(note)))
}

/// Returns the memory that the limits of memtrace's own cgroup leave, if they are low.
fn own_limit() -> Option<Bytes> {
    let memory = procfs::cgroup_memory(Pid(std::process::id()))?;
    let limit = memory.limit?;
    // The page cache of the cgroup gives way.
    let used = limit.current.0.saturating_sub(memory.file.unwrap_or_default().0);
    Some(Bytes(limit.most.0.saturating_sub(used))).filter(|free| *free < LOW_LIMIT)
}

/// Returns the largest sizes within `limit`, none larger than `full`; `None` if the smallest do not fit.
fn within(limit: Bytes, rings: u32, full: MemorySizes) -> Option<MemorySizes> {
    let rest = limit.0.checked_sub(PROGRAM)?;
    let rings = u64::from(rings.max(1));
    let rows = u32::try_from(rest / UNWIND_ROWS / ROWS).unwrap_or(u32::MAX);
    let ring = (rest / RINGS / rings).checked_ilog2().map(|bits| 1 << bits).filter(|&ring| ring >= SMALLEST_RING)?;
    Some(MemorySizes {
        maps: MapSizes::within(Bytes(rest / MAPS), rows)?,
        ring_size: full.ring_size.min(Bytes(ring)),
        live: full.live.min(rest / LIVE_BLOCKS / BLOCK),
        stacks: full.stacks.min(u32::try_from(rest / STACKS / STACK / rings).unwrap_or(u32::MAX)),
    })
}

/// Returns the lowest limit within which memtrace runs with `rings` rings.
fn smallest(rings: u32) -> Bytes {
    let maps = MAPS * MapSizes::SMALLEST.memory().0;
    let rings = RINGS * SMALLEST_RING * u64::from(rings.max(1));
    Bytes((PROGRAM + maps.max(rings).max(UNWIND_ROWS * ROWS)).next_multiple_of(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: MemorySizes =
        MemorySizes { maps: MapSizes::FULL, ring_size: Bytes(16 << 20), live: 32_000_000, stacks: MAX_STACKS };

    fn memory(sizes: MemorySizes, rings: u32) -> u64 {
        let MemorySizes { maps, ring_size, live, stacks } = sizes;
        let stacks = u64::from(stacks) * u64::from(rings) * STACK;
        PROGRAM + maps.memory().0 + u64::from(rings) * ring_size.0 + live * BLOCK + stacks + u64::from(maps.rows) * ROWS
    }

    #[test]
    fn sizes_fit_into_every_limit_from_the_smallest_on() {
        for rings in [1, 2, 4, 16] {
            let least = smallest(rings);
            assert_eq!(within(Bytes(least.0 - (1 << 20)), rings, FULL), None, "{rings}");
            for limit in (least.0..1 << 30).step_by(1 << 20) {
                let sizes = within(Bytes(limit), rings, FULL).unwrap();
                assert!(memory(sizes, rings) <= limit, "{limit} bytes, {rings} rings: {sizes:?}");
                assert!(sizes.ring_size.0 >= SMALLEST_RING && sizes.live > 10_000 && sizes.stacks > 100);
            }
        }
    }

    #[test]
    fn a_large_limit_changes_nothing() {
        assert_eq!(within(Bytes(1 << 40), 4, FULL), Some(FULL));
    }

    #[test]
    fn options_remain_upper_limits() {
        let full = MemorySizes { ring_size: Bytes(4096), live: 7, ..FULL };
        let sizes = within(Bytes(64 << 20), 2, full).unwrap();
        assert_eq!((sizes.ring_size, sizes.live), (Bytes(4096), 7));
    }

    #[test]
    fn shares_add_up_to_the_whole() {
        let parts = [MAPS, RINGS, LIVE_BLOCKS, STACKS, UNWIND_ROWS];
        assert_eq!(parts.iter().map(|share| 8 / share).sum::<u64>(), 8);
        assert_eq!(smallest(2), Bytes(40 << 20));
    }
}
