//! Sizes of the BPF maps. The maps in `MAPS` can have fewer entries, to take less memory.

use aya::EbpfLoader;
use memtrace_model::Bytes;

/// Map that can have fewer entries.
struct SizedMap {
    name: &'static str,
    /// Number of entries without a memory limit: a power of two.
    entries: u32,
    /// Memory of an entry in bytes: the key, the value and the kernel's links.
    entry_bytes: u32,
    /// Runs that use the map. In other runs, the map has the smallest possible size.
    purpose: Purpose,
}

/// Runs that use a map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    All,
    Tags,
    Activity,
    ActivityRing,
    Samples,
}

/// Optional parts of a run that have maps of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapUses {
    /// Tags that programs set.
    pub tags: bool,
    /// Activity of threads.
    pub activity: bool,
    /// Samples of allocations.
    pub samples: bool,
}

const fn map(name: &'static str, entries: u32, entry_bytes: u32) -> SizedMap {
    SizedMap { name, entries, entry_bytes, purpose: Purpose::All }
}

const fn map_of_tags(name: &'static str, entries: u32, entry_bytes: u32) -> SizedMap {
    SizedMap { name, entries, entry_bytes, purpose: Purpose::Tags }
}

/// Smallest possible size of a ring in bytes.
const PAGE: u32 = 4096;

/// Large maps, with the number of entries at full size.
const MAPS: &[SizedMap] = &[
    map("PAGES", 1 << 20, 8),
    map("SCRATCH", 1 << 11, 3736),
    // The size of a ring is in bytes.
    map("STACK_COPIES", 1 << 22, 1),
    map("DECISIONS", 1 << 16, 80),
    map("SENT", 1 << 16, 80),
    map("PENDING", 1 << 16, 64),
    map("INTERRUPTED", 1 << 12, 408),
    map("VMA_CACHE", 1 << 14, 136),
    map("EXEC_VMAS", 1 << 14, 112),
    map("OBJECTS", 1 << 13, 192),
    map("PROCS", 1 << 14, 88),
    map("SEARCHES", 1 << 14, 88),
    map("BREAKS", 1 << 13, 80),
    map("HUGE_CALLS", 1 << 10, 80),
    map("HUGE_PAGES", 1 << 12, 88),
    map("NOTES", 1 << 12, 88),
    map("MIN_SIZES", 1 << 12, 64),
    map("DROPPED", 1 << 12, 72),
    map("MAIN_PROCESSES", 1 << 13, 80),
    map("SHARER_COUNTS", 1 << 13, 80),
    map("MEMCG_SCANNED", 1 << 12, 80),
    map_of_tags("THREAD_TAGS", 1 << 16, 64),
    map_of_tags("WRAPPER_CALLS", 1 << 16, 64),
    map_of_tags("WAITING_RECORDS", 1 << 14, 112),
    map_of_tags("PROCESS_TAGS", 1 << 12, 72),
    map_of_tags("TAGS", 1 << 12, 152),
    SizedMap { name: "ACTIVITY", entries: 1 << 23, entry_bytes: 1, purpose: Purpose::ActivityRing },
    SizedMap { name: "ACTIVE_THREADS", entries: 1 << 14, entry_bytes: 168, purpose: Purpose::Activity },
    SizedMap { name: "DRAWN_SIZES", entries: 1 << 12, entry_bytes: 80, purpose: Purpose::Samples },
    SizedMap { name: "SAMPLED_PROCESSES", entries: 1 << 13, entry_bytes: 80, purpose: Purpose::Samples },
];

/// Memory of all other maps in bytes. It leaves out maps with entries for each processor or task, and the rings of the
/// shards.
const OTHERS: u64 = 2 << 20;

/// Maps of runs that count the usage of threads. In other runs, they have the smallest possible size, which is given here. The
/// kernel allocates the memory of rings, and of the buckets of hash tables, when it creates a map: 16 MiB for `SIZES`.
const MAPS_OF_COUNTS: [(&str, u32); 4] =
    [("SIZES", 1), ("PROCESS_USAGE", 1), ("ALLOCATOR_COUNTERS", 1), ("THREAD_EXITS", PAGE)];

/// Sizes of the BPF maps of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSizes {
    /// The numbers of entries are divided by 2 to the power of `shift`.
    shift: u32,
    /// Maximum number of maps of unwind rows, of 1 MiB each.
    pub rows: u32,
    /// Optional parts of the run.
    pub uses: MapUses,
}

impl MapSizes {
    /// Sizes without a memory limit, for a run without optional parts.
    pub const FULL: Self = Self {
        shift: 0,
        rows: memtrace_common::unwind::MAX_BLOBS as u32,
        uses: MapUses { tags: false, activity: false, samples: false },
    };

    /// Returns these sizes for a run with the optional parts `uses`.
    #[must_use]
    pub const fn with(self, uses: MapUses) -> Self {
        Self { uses, ..self }
    }

    /// Smallest sizes, for a run with all optional parts. With fewer entries, a thread would often find no free slot.
    pub const SMALLEST: Self = Self { shift: 4, rows: 1, uses: MapUses { tags: true, activity: true, samples: true } };

    /// Returns the largest sizes that take at most the memory `maps` ([`Self::memory`]); `None` if even the smallest sizes take
    /// more. `rows` is the maximum number of maps of unwind rows.
    #[must_use]
    pub fn within(maps: Bytes, rows: u32, uses: MapUses) -> Option<Self> {
        let sizes = (0..=Self::SMALLEST.shift).map(|shift| Self { shift, rows: rows.clamp(1, Self::FULL.rows), uses });
        sizes.into_iter().find(|sizes| sizes.memory() <= maps)
    }

    /// Returns the memory of the maps without unwind rows, in a run that does not count threads.
    #[must_use]
    pub fn memory(self) -> Bytes {
        let scaled = MAPS.iter().map(|map| u64::from(self.entries_of(map)) * u64::from(map.entry_bytes));
        Bytes(OTHERS + scaled.sum::<u64>())
    }

    /// Returns the number of entries of the map `name`; 0 if the map is not in the table.
    pub(super) fn entries(self, name: &str) -> u32 {
        MAPS.iter().find(|map| map.name == name).map_or(0, |map| self.entries_of(map))
    }

    const fn entries_of(self, map: &SizedMap) -> u32 {
        match map.purpose {
            Purpose::Tags if !self.uses.tags => 1,
            Purpose::ActivityRing if !self.uses.activity => PAGE,
            Purpose::Activity if !self.uses.activity => 1,
            Purpose::Samples if !self.uses.samples => 1,
            _ => map.entries >> self.shift,
        }
    }

    /// Sets the sizes of the maps that `loader` creates. `counts_threads` is true for a run that counts the usage of
    /// threads.
    pub(super) fn apply(self, loader: &mut EbpfLoader<'_>, counts_threads: bool) {
        for map in MAPS.iter().filter(|map| self.entries_of(map) != map.entries) {
            loader.map_max_entries(map.name, self.entries_of(map));
        }
        if !counts_threads {
            for (name, smallest) in MAPS_OF_COUNTS {
                loader.map_max_entries(name, smallest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aya_obj::generated::bpf_map_type;

    use crate::kernel::load::OBJECT;

    #[test]
    fn the_table_has_the_entries_of_the_object() {
        let object = aya_obj::Object::parse(OBJECT).unwrap();
        for map in MAPS {
            let max_entries = object.maps.get(map.name).unwrap().max_entries();
            assert_eq!((max_entries, map.entries.is_power_of_two()), (map.entries, true), "{}", map.name);
        }
    }

    /// Returns the memory of a map in bytes, as `htab_map_mem_usage` (kernel/bpf/hashtab.c) and `array_map_mem_usage`
    /// (kernel/bpf/arraymap.c) compute it.
    fn kernel_memory(map: &aya_obj::Map) -> u64 {
        const ELEMENT: u64 = 48;
        const BUCKET: u64 = 16;
        let entries = u64::from(map.max_entries());
        let [key, value] = [map.key_size(), map.value_size()].map(|size| u64::from(size).next_multiple_of(8));
        let is_preallocated = map.map_flags() & aya_obj::generated::BPF_F_NO_PREALLOC == 0;
        match bpf_map_type::try_from(map.map_type()).ok().unwrap() {
            bpf_map_type::BPF_MAP_TYPE_HASH | bpf_map_type::BPF_MAP_TYPE_LRU_HASH => {
                let elements = if is_preallocated { entries * (ELEMENT + key + value) } else { 0 };
                entries.next_power_of_two() * BUCKET + elements
            }
            bpf_map_type::BPF_MAP_TYPE_ARRAY | bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS => entries * value,
            bpf_map_type::BPF_MAP_TYPE_RINGBUF => entries,
            _ => 0,
        }
    }

    #[test]
    fn the_other_maps_take_what_is_stated() {
        let object = aya_obj::Object::parse(OBJECT).unwrap();
        let sized: Vec<_> = MAPS.iter().map(|map| map.name).chain(MAPS_OF_COUNTS.map(|(name, _)| name)).collect();
        let others: Vec<_> = object.maps.iter().filter(|(name, _)| !sized.contains(&name.as_str())).collect();
        let memory: Vec<_> = others.iter().map(|(name, map)| (*name, kernel_memory(map))).collect();
        let sum = memory.iter().map(|(_, bytes)| bytes).sum::<u64>();
        assert!((OTHERS / 2..=OTHERS).contains(&sum), "{sum}: {memory:#?}");
    }

    #[test]
    fn maps_shrink_until_they_fit() {
        let none = MapUses::default();
        let all = MapUses { tags: true, activity: true, samples: true };
        let tags = MapUses { tags: true, ..none };
        let full = MapSizes::FULL.memory();
        assert_eq!(MapSizes::within(full, 1000, none), Some(MapSizes::FULL));
        assert_eq!(MapSizes::FULL.with(tags).memory().0 - full.0, (128 << 16) + (112 << 14) + (224 << 12) - 464);
        let half = MapSizes::within(Bytes(full.0 - 1), 3, none).unwrap();
        assert_eq!((half.entries("PAGES"), half.rows), (1 << 19, 3));
        assert!(half.memory() < full);
        let smallest = MapSizes::SMALLEST.memory();
        assert_eq!(MapSizes::within(smallest, 0, all), Some(MapSizes::SMALLEST));
        assert_eq!(MapSizes::within(Bytes(smallest.0 - 1), 1, all), None);
        assert!(MapSizes::SMALLEST.with(none).memory() < Bytes(6 << 20));
    }
}
