//! Properties of the running kernel and of the machine.

use std::io;
use std::path::Path;

use memtrace_model::Pid;

use crate::procfs::kernel_files;

/// Returns the numbers of the online CPUs.
///
/// # Errors
///
/// Errors of reading the list, and `InvalidData` if it is malformed.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    let list = kernel_files::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpu_list(list.trim()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Parses a list such as `0-3,8` ("List format", `bitmap_print_to_pagebuf`, lib/bitmap-str.c).
fn parse_cpu_list(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

/// Returns the last pid that the kernel has assigned to a new thread or process. The kernel assigns pids in ascending order.
/// After the largest pid, it continues with the lowest free one (`alloc_pid`, kernel/pid.c).
pub fn last_pid() -> Option<Pid> {
    parse_last_pid(&read("/proc/loadavg")?)
}

/// Parses the last field of `/proc/loadavg` (`loadavg_proc_show`, fs/proc/loadavg.c).
fn parse_last_pid(loads: &str) -> Option<Pid> {
    loads.split(' ').nth(4)?.parse().ok().map(Pid)
}

/// Returns the kernel's release, such as `6.18.5`.
pub fn kernel_release() -> Option<String> {
    sysctl("kernel.osrelease")
}

/// Returns the major and minor version of a release such as `6.1.0-30-amd64`.
#[must_use]
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Returns the value of a sysctl, such as `kernel.perf_event_paranoid`.
pub fn sysctl(name: &str) -> Option<String> {
    read(&format!("/proc/sys/{}", name.replace('.', "/")))
}

/// Returns the lockdown modes, with the active mode in brackets: `none [integrity] confidentiality`.
pub fn lockdown_modes() -> Option<String> {
    read("/sys/kernel/security/lockdown")
}

fn read(path: &str) -> Option<String> {
    kernel_files::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

/// Returns the path of the kernel's BTF.
pub(crate) fn kernel_btf() -> &'static Path {
    Path::new("/sys/kernel/btf/vmlinux")
}

/// Returns the path of the file with the type number of uprobe perf events. It exists if the kernel has uprobes.
pub(crate) fn uprobe_type() -> &'static Path {
    Path::new("/sys/bus/event_source/devices/uprobe/type")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_consist_of_ranges() {
        assert_eq!(parse_cpu_list("0-2,5,8-9"), Some(vec![0, 1, 2, 5, 8, 9]));
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("0-"), None);
        assert!(!online_cpus().unwrap().is_empty());
    }

    #[test]
    fn last_pid_is_the_last_number() {
        assert_eq!(parse_last_pid("0.20 0.18 0.12 1/80 11206"), Some(Pid(11_206)));
        assert_eq!([parse_last_pid("0.20 0.18 0.12 1/80"), parse_last_pid("a b c d e")], [None; 2]);
        assert!(last_pid().is_some());
    }
}
