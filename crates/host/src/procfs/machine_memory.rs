//! Readers of `/proc/meminfo` and `/proc/vmstat`: values over time, and memory by type.

use memtrace_model::{Bytes, KernelMemory, MachineMemory, MemoryCounters};

use super::pressure::machine_pressure;
use super::smaps::kilobytes;
use crate::procfs::kernel_files;

/// Rows of `/proc/meminfo` (proc_meminfo(5)) with the names of their values.
const MEMINFO: [(&str, &str); 14] = [
    ("MemTotal", "meminfo.MemTotal_bytes"),
    ("MemFree", "meminfo.MemFree_bytes"),
    ("MemAvailable", "meminfo.MemAvailable_bytes"),
    ("Buffers", "meminfo.Buffers_bytes"),
    ("Cached", "meminfo.Cached_bytes"),
    ("SwapTotal", "meminfo.SwapTotal_bytes"),
    ("SwapFree", "meminfo.SwapFree_bytes"),
    ("Dirty", "meminfo.Dirty_bytes"),
    ("AnonPages", "meminfo.AnonPages_bytes"),
    ("Shmem", "meminfo.Shmem_bytes"),
    ("SReclaimable", "meminfo.SReclaimable_bytes"),
    ("SUnreclaim", "meminfo.SUnreclaim_bytes"),
    ("KernelStack", "meminfo.KernelStack_bytes"),
    ("PageTables", "meminfo.PageTables_bytes"),
];

/// Rows of `/proc/vmstat` (`vmstat_text`, mm/vmstat.c) with the names of their values.
const VMSTAT: [(&str, &str); 12] = [
    ("pgfault", "vmstat.pgfault"),
    ("pgmajfault", "vmstat.pgmajfault"),
    ("pgscan_kswapd", "vmstat.pgscan_kswapd"),
    ("pgscan_direct", "vmstat.pgscan_direct"),
    ("pgsteal_kswapd", "vmstat.pgsteal_kswapd"),
    ("pgsteal_direct", "vmstat.pgsteal_direct"),
    ("workingset_refault_anon", "vmstat.workingset_refault_anon"),
    ("workingset_refault_file", "vmstat.workingset_refault_file"),
    ("pswpin", "vmstat.pswpin"),
    ("pswpout", "vmstat.pswpout"),
    ("compact_stall", "vmstat.compact_stall"),
    ("oom_kill", "vmstat.oom_kill"),
];

/// Returns the memory of the machine, the counters of its memory management, and its memory pressure, each with its
/// name. Values that the kernel lacks are absent.
pub fn machine_memory() -> Vec<(&'static str, u64)> {
    let mut values = Vec::with_capacity(MEMINFO.len() + VMSTAT.len() + 2);
    let meminfo = kernel_files::read_to_string("/proc/meminfo").unwrap_or_default();
    values.extend(rows(&meminfo, ':', &MEMINFO, bytes));
    let vmstat = kernel_files::read_to_string("/proc/vmstat").unwrap_or_default();
    values.extend(rows(&vmstat, ' ', &VMSTAT, |value| value.trim().parse().ok()));
    if let Some(pressure) = machine_pressure() {
        values.push(("pressure.memory_some_ns", pressure.some.total_ns()));
        values.extend(pressure.full.map(|full| ("pressure.memory_full_ns", full.total_ns())));
    }
    values
}

/// Returns the memory of the machine by type; `None` if `/proc` is not mounted.
#[must_use]
pub fn memory_by_type() -> Option<MachineMemory> {
    parse_by_type(&kernel_files::read_to_string("/proc/meminfo").ok()?)
}

/// Parses `/proc/meminfo`. The page cache consists of the pages of files (`Cached`) and of block devices (`Buffers`).
fn parse_by_type(meminfo: &str) -> Option<MachineMemory> {
    let value = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(bytes).map(Bytes)
    };
    let sum = |one: &str, other: &str| Some(Bytes(value(one)?.0.saturating_add(value(other).unwrap_or_default().0)));
    let difference = |one: &str, other: &str| Some(Bytes(value(one)?.0.saturating_sub(value(other)?.0)));
    let counters = MemoryCounters {
        anonymous: value("AnonPages"),
        file: sum("Cached", "Buffers"),
        shmem: value("Shmem"),
        mapped: value("Mapped"),
        dirty: sum("Dirty", "Writeback"),
        swap: difference("SwapTotal", "SwapFree"),
        kernel: KernelMemory {
            // The kernel does not report a sum, or the buffers of sockets.
            total: None,
            sockets: None,
            slab_reclaimable: value("SReclaimable"),
            slab_unreclaimable: value("SUnreclaim"),
            stacks: value("KernelStack"),
            page_tables: sum("PageTables", "SecPageTables"),
            per_cpu: value("Percpu"),
            // Stacks are mapped by vmalloc too (CONFIG_VMAP_STACK).
            vmalloc: difference("VmallocUsed", "KernelStack"),
            zswap: value("Zswap"),
        },
    };
    let (total, free, available) = (value("MemTotal")?, value("MemFree")?, value("MemAvailable")?);
    Some(MachineMemory { total, free, available, hugetlb: value("Hugetlb"), counters })
}

/// Returns the values of the rows with keys in `names`. A row is `KEY SEPARATOR VALUE`.
pub(super) fn rows<'t, N: Copy>(
    text: &'t str,
    separator: char,
    names: &'t [(&'static str, N)],
    parse: impl Fn(&str) -> Option<u64> + 't,
) -> impl Iterator<Item = (N, u64)> + 't {
    text.lines().filter_map(move |line| {
        let (key, value) = line.split_once(separator)?;
        let (_, name) = names.iter().find(|(known, _)| *known == key)?;
        Some((*name, parse(value)?))
    })
}

/// Parses a value of `/proc/meminfo`, and returns it in bytes.
pub(super) fn bytes(value: &str) -> Option<u64> {
    Some(kilobytes(value.as_bytes())?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_names_are_read() {
        let text = "MemTotal:        4096 kB\nHugePages_Total:       0\nSwapFree:       x kB\nDirty:       8 kB\n";
        let values: Vec<_> = rows(text, ':', &MEMINFO, bytes).collect();
        assert_eq!(values, [("meminfo.MemTotal_bytes", 4096 << 10), ("meminfo.Dirty_bytes", 8192)]);
    }

    #[test]
    fn memory_of_the_machine_has_its_types() {
        let text = "MemTotal:  4096 kB\nMemFree:  64 kB\nMemAvailable:  99 kB\nBuffers:  3 kB\nCached:  50 kB\n\
                    SwapCached:  9 kB\nSwapTotal:  8 kB\nSwapFree:  2 kB\nMapped:  20 kB\nShmem:  7 kB\n\
                    PageTables:  5 kB\nZswap:  1 kB\nZswapped:  3 kB\nHugetlb:  2048 kB\n";
        let machine = parse_by_type(text).unwrap();
        let kib = |number: u64| Some(Bytes(number << 10));
        assert_eq!((Some(machine.total), Some(machine.free), Some(machine.available)), (kib(4096), kib(64), kib(99)));
        let counters = MemoryCounters {
            file: kib(53),
            shmem: kib(7),
            mapped: kib(20),
            swap: kib(6),
            kernel: KernelMemory { page_tables: kib(5), zswap: kib(1), ..KernelMemory::default() },
            ..MemoryCounters::default()
        };
        assert_eq!((machine.counters, machine.hugetlb), (counters, kib(2048)));
        assert_eq!(parse_by_type("MemTotal:  x kB\n"), None);
    }

    #[test]
    fn running_kernel_has_the_rows() {
        let values = machine_memory();
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        for (_, name) in MEMINFO {
            assert!(value(name).is_some(), "{name}");
        }
        assert!(value("vmstat.pgfault") > Some(0));
        assert!(value("meminfo.MemTotal_bytes") > value("meminfo.MemFree_bytes"));
        let machine = memory_by_type().unwrap();
        assert_eq!(Some(machine.total.0), value("meminfo.MemTotal_bytes"));
        assert!(machine.counters.unmapped().is_some() && machine.counters.kernel.sum() > Some(Bytes(0)));
    }
}
