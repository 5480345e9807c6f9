//! Memory of a cgroup by type (`memory.stat`), and its events, in version 1 or 2.

use std::path::Path;

use memtrace_model::{Bytes, CgroupEvents, MemoryCounters};

use crate::procfs::kernel_files;

/// Files with the counters of a cgroup version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CounterFiles {
    /// Prefix of the counters in `memory.stat` that include descendants.
    prefix: &'static str,
    /// File with the swapped-out bytes; `None` if they are in `memory.stat`.
    swap: Option<&'static str>,
    /// File with the sum of all kernel memory, and file with the buffers of TCP sockets; `None` if they are in `memory.stat`.
    kernel: Option<(&'static str, &'static str)>,
    /// File that counts events. A line is `NAME NUMBER`.
    events: &'static str,
}

/// Files of version 2 (Documentation/admin-guide/cgroup-v2.rst, "Memory").
pub(super) const VERSION_2: CounterFiles =
    CounterFiles { prefix: "", swap: Some("memory.swap.current"), kernel: None, events: "memory.events" };

/// Files of version 1 (Documentation/admin-guide/cgroup-v1/memory.rst).
pub(super) const VERSION_1: CounterFiles = CounterFiles {
    prefix: "total_",
    swap: None,
    kernel: Some(("memory.kmem.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes")),
    events: "memory.oom_control",
};

impl CounterFiles {
    /// Reads the memory by type of the cgroup at `directory`.
    pub(super) fn read(&self, directory: &Path) -> MemoryCounters {
        let stat = kernel_files::read_to_string(directory.join("memory.stat")).unwrap_or_default();
        let mut counters = parse(&stat, self.prefix);
        if let Some(swap) = self.swap {
            counters.swap = bytes(&directory.join(swap));
        }
        if let Some((all, sockets)) = self.kernel {
            counters.kernel.total = bytes(&directory.join(all));
            counters.kernel.sockets = bytes(&directory.join(sockets));
        }
        counters
    }

    /// Reads the events of the cgroup at `directory`. Version 1 counts attempts to exceed the limit elsewhere.
    pub(super) fn events(&self, directory: &Path) -> CgroupEvents {
        parse_events(&kernel_files::read_to_string(directory.join(self.events)).unwrap_or_default())
    }
}

/// Reads a file with one number; returns `None` for `max`.
pub(super) fn bytes(path: &Path) -> Option<Bytes> {
    kernel_files::read_to_string(path).ok()?.trim().parse().ok().map(Bytes)
}

/// Parses `memory.stat`. The versions have different names (`memory_stats` in mm/memcontrol.c, `memcg1_stat_names` in
/// mm/memcontrol-v1.c). `prefix`: prefix of the counters that include descendants.
fn parse(stat: &str, prefix: &str) -> MemoryCounters {
    let mut counters = MemoryCounters::default();
    let lines = stat.lines().filter_map(|line| line.strip_prefix(prefix)?.split_once(' '));
    for (name, number) in lines {
        let counter = match name {
            "anon" | "rss" => &mut counters.anonymous,
            "file" | "cache" => &mut counters.file,
            "shmem" => &mut counters.shmem,
            "file_mapped" | "mapped_file" => &mut counters.mapped,
            "file_dirty" | "file_writeback" | "dirty" | "writeback" => &mut counters.dirty,
            "swap" => &mut counters.swap,
            "kernel" => &mut counters.kernel.total,
            "slab_reclaimable" => &mut counters.kernel.slab_reclaimable,
            "slab_unreclaimable" => &mut counters.kernel.slab_unreclaimable,
            "kernel_stack" => &mut counters.kernel.stacks,
            "pagetables" | "sec_pagetables" => &mut counters.kernel.page_tables,
            "sock" => &mut counters.kernel.sockets,
            "percpu" => &mut counters.kernel.per_cpu,
            "vmalloc" => &mut counters.kernel.vmalloc,
            "zswap" => &mut counters.kernel.zswap,
            _ => continue,
        };
        if let Ok(number) = number.trim().parse() {
            let sum = counter.get_or_insert_default();
            sum.0 = sum.0.saturating_add(number);
        }
    }
    counters
}

/// Parses the lines of `memory.events`, or of `memory.oom_control`.
fn parse_events(text: &str) -> CgroupEvents {
    let mut events = CgroupEvents::default();
    for (name, number) in text.lines().filter_map(|line| line.split_once(' ')) {
        let event = match name {
            "high" => &mut events.high,
            "max" => &mut events.max,
            "oom" => &mut events.oom,
            "oom_kill" => &mut events.oom_kill,
            _ => continue,
        };
        *event = number.trim().parse().ok();
    }
    events
}

#[cfg(test)]
mod tests {
    use std::fs;

    use harness::Scratch;
    use memtrace_model::KernelMemory;

    use super::*;

    /// From Linux 6.18, shortened.
    const STAT_2: &str = "\
anon 1048576
file 8388608
kernel 2621440
kernel_stack 114688
pagetables 98304
sec_pagetables 4096
percpu 12288
sock 16384
vmalloc 20480
shmem 4194304
zswap 36864
zswapped 40960
file_mapped 2097152
file_dirty 8192
file_writeback 4096
swapcached 0
anon_thp 0
inactive_anon 5242880
slab_reclaimable 1048576
slab_unreclaimable 524288
slab 1572864
workingset_refault_file 9
";

    /// From Linux 5.10, shortened.
    const STAT_1: &str = "\
cache 4096
rss 8192
total_cache 8388608
total_rss 1048576
total_rss_huge 0
total_shmem 4194304
total_mapped_file 2097152
total_dirty 8192
total_writeback 4096
total_swap 40960
total_pgpgin 77
";

    #[test]
    fn both_versions_have_the_same_counters() {
        let scratch = Scratch::new();
        let write = |name: &str, text: &str| fs::write(scratch.path(name), text).unwrap();
        write("memory.stat", STAT_2);
        write("memory.swap.current", "40960\n");
        let two = VERSION_2.read(&scratch.path(""));
        write("memory.stat", STAT_1);
        write("memory.kmem.usage_in_bytes", "2621440\n");
        write("memory.kmem.tcp.usage_in_bytes", "16384\n");
        let one = VERSION_1.read(&scratch.path(""));
        let some = |bytes| Some(Bytes(bytes));
        let expected = MemoryCounters {
            anonymous: some(1 << 20),
            file: some(8 << 20),
            shmem: some(4 << 20),
            mapped: some(2 << 20),
            dirty: some(12_288),
            swap: some(40_960),
            kernel: KernelMemory {
                total: some(2_621_440),
                slab_reclaimable: some(1 << 20),
                slab_unreclaimable: some(1 << 19),
                stacks: some(114_688),
                page_tables: some(102_400),
                sockets: some(16_384),
                per_cpu: some(12_288),
                vmalloc: some(20_480),
                zswap: some(36_864),
            },
        };
        assert_eq!(two, expected);
        let kernel = KernelMemory { total: some(2_621_440), sockets: some(16_384), ..KernelMemory::default() };
        assert_eq!(one, MemoryCounters { kernel, ..expected });
        assert_eq!((one.unmapped(), one.clean()), (some(6 << 20), some((4 << 20) - 12_288)));
    }

    #[test]
    fn events_are_read_in_both_versions() {
        let scratch = Scratch::new();
        let write = |name: &str, text: &str| fs::write(scratch.path(name), text).unwrap();
        write("memory.events", "low 1\nhigh 5\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n");
        write("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        let two = CgroupEvents { high: Some(5), max: Some(12), oom: Some(2), oom_kill: Some(1) };
        assert_eq!(VERSION_2.events(&scratch.path("")), two);
        let one = CgroupEvents { oom_kill: Some(3), ..CgroupEvents::default() };
        assert_eq!(VERSION_1.events(&scratch.path("")), one);
    }

    #[test]
    fn malformed_and_missing_counters_are_none() {
        let stat = "anon\nanon x\nfile -7\nshmem 18446744073709551616\n\
                    file_dirty 18446744073709551615\nfile_writeback 9\n";
        let dirty = Some(Bytes(u64::MAX));
        assert_eq!(parse(stat, ""), MemoryCounters { dirty, ..MemoryCounters::default() });
        let scratch = Scratch::new();
        assert_eq!(VERSION_1.read(&scratch.path("")), MemoryCounters::default());
        assert_eq!(VERSION_2.events(&scratch.path("")), CgroupEvents::default());
    }
}
