//! Reader of the machine's processor time, block I/O, pressure and memory.

use std::path::Path;
use std::time::Duration;

use memtrace_model::{MachineUsage, MachineValue};

use super::cpu_clock::ticks_per_second;
use super::machine_memory::{bytes, rows};
use super::pressure;
use crate::procfs::kernel_files;

/// Size in bytes of a sector of `/proc/diskstats` (Documentation/admin-guide/iostats.rst).
const SECTOR: u64 = 512;

/// Prefixes of block devices that do not count: memory, floppy disks, and devices that pass their I/O on to other
/// devices, which would count the I/O again.
const NO_DISKS: [&str; 6] = ["loop", "ram", "zram", "dm-", "md", "fd"];

/// Rows of `/proc/meminfo` (proc_meminfo(5)), with their values.
const MEMINFO: [(&str, MachineValue); 3] = [
    ("MemAvailable", MachineValue::MemoryAvailable),
    ("MemTotal", MachineValue::MemoryTotal),
    ("SwapFree", MachineValue::SwapFree),
];

/// Reads the usage of the machine since its boot. Values that the kernel lacks are `None`.
pub fn machine_usage() -> MachineUsage {
    let mut usage = MachineUsage::default();
    let read = |path: &str| kernel_files::read_to_string(path).unwrap_or_default();
    for (value, number) in processor_times(&read("/proc/stat")).into_iter().flatten() {
        usage.set(value, Some(number));
    }
    if let Some((read, written)) = disk_bytes(&read("/proc/diskstats"), is_disk) {
        usage.set(MachineValue::DiskRead, Some(read));
        usage.set(MachineValue::DiskWrite, Some(written));
    }
    for (value, path) in [
        (MachineValue::CpuPressure, "/proc/pressure/cpu"),
        (MachineValue::MemoryPressure, "/proc/pressure/memory"),
        (MachineValue::IoPressure, "/proc/pressure/io"),
    ] {
        usage.set(value, pressure::read(Path::new(path)).map(|pressure| pressure.some.total_ns()));
    }
    for (value, number) in rows(&read("/proc/meminfo"), ':', &MEMINFO, bytes) {
        usage.set(value, Some(number));
    }
    usage
}

/// Returns the time that the processors of the machine have spent on threads and interrupts since its boot; `None` if it cannot
/// be read.
#[must_use]
pub fn processor_time_of_machine() -> Option<Duration> {
    let times = processor_times(&kernel_files::read_to_string("/proc/stat").ok()?)?.into_iter();
    let busy = times.filter(|(value, _)| matches!(value, MachineValue::UserTime | MachineValue::SystemTime));
    Some(Duration::from_nanos(busy.map(|(_, time)| time).sum()))
}

/// Parses the times of all processors together: `cpu user nice system idle iowait irq softirq steal …`, in ticks
/// (proc_stat(5)).
fn processor_times(stat: &str) -> Option<[(MachineValue, u64); 5]> {
    let ticks: Vec<u64> = stat.strip_prefix("cpu ")?.lines().next()?.split_whitespace().map_while(number).collect();
    let [user, nice, system, idle, wait, irq, softirq, steal, ..] = *ticks.as_slice() else { return None };
    let nanoseconds = |ticks: u64| ticks.saturating_mul(tick_ns());
    Some([
        (MachineValue::UserTime, nanoseconds(user + nice)),
        (MachineValue::SystemTime, nanoseconds(system + irq + softirq)),
        (MachineValue::IdleTime, nanoseconds(idle)),
        (MachineValue::WaitTime, nanoseconds(wait)),
        (MachineValue::StealTime, nanoseconds(steal)),
    ])
}

fn number(field: &str) -> Option<u64> {
    field.parse().ok()
}

/// Returns the length of a tick of `/proc/stat` in nanoseconds.
fn tick_ns() -> u64 {
    1_000_000_000 / ticks_per_second().unwrap_or(100)
}

/// Returns the bytes that were read from disks and written to disks. A row is
/// `MAJOR MINOR NAME READS MERGED SECTORS MS WRITES MERGED SECTORS …`.
fn disk_bytes(diskstats: &str, is_disk: impl Fn(&str) -> bool) -> Option<(u64, u64)> {
    if diskstats.is_empty() {
        return None;
    }
    let rows = diskstats.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let name = *fields.get(2)?;
        is_disk(name).then_some((number(fields.get(5)?)?, number(fields.get(9)?)?))
    });
    let (read, written) = rows.fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    Some((read * SECTOR, written * SECTOR))
}

/// Returns true for a whole disk. Partitions have no directory in `/sys/block`.
fn is_disk(name: &str) -> bool {
    !NO_DISKS.iter().any(|prefix| name.starts_with(prefix)) && Path::new("/sys/block").join(name).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_all_processors_are_read() {
        let text = "cpu  10 1 20 300 4 5 6 7 0 0\ncpu0 10 1 20 300 4 5 6 7 0 0\n";
        let times = processor_times(text).unwrap().map(|(_, time)| time / tick_ns());
        assert_eq!(times, [11, 31, 300, 4, 7]);
        assert_eq!(processor_times("cpu  10 1 20\n"), None);
        assert_eq!(processor_times("intr 5\n"), None);
    }

    #[test]
    fn only_whole_disks_count() {
        let text =
            " 8 0 sda 5 0 16 1 7 0 32 1 0 0 0\n 8 1 sda1 5 0 16 1 7 0 32 1 0 0 0\n 7 0 loop0 1 0 8 1 0 0 0 0 0 0 0\n";
        assert_eq!(disk_bytes(text, |name| name == "sda"), Some((16 * 512, 32 * 512)));
        assert_eq!(disk_bytes("", |_| true), None);
        assert!(!is_disk("loop0") && !is_disk("no such disk"));
    }

    #[test]
    fn the_running_kernel_has_the_values() {
        let usage = machine_usage();
        for value in [MachineValue::UserTime, MachineValue::IdleTime, MachineValue::MemoryTotal] {
            assert!(usage.get(value) > Some(0), "{value:?}");
        }
        let busy = usage.get(MachineValue::UserTime).zip(usage.get(MachineValue::SystemTime));
        let busy = busy.map(|(user, system)| Duration::from_nanos(user + system));
        assert!(processor_time_of_machine() >= busy, "{busy:?}");
        assert!(usage.get(MachineValue::MemoryAvailable) <= usage.get(MachineValue::MemoryTotal));
    }
}
