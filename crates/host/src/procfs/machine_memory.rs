//! Readers of `/proc/meminfo` and `/proc/vmstat` for values over time.

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
    fn running_kernel_has_the_rows() {
        let values = machine_memory();
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        for (_, name) in MEMINFO {
            assert!(value(name).is_some(), "{name}");
        }
        assert!(value("vmstat.pgfault") > Some(0));
        assert!(value("meminfo.MemTotal_bytes") > value("meminfo.MemFree_bytes"));
    }
}
