//! Reader of `/proc/PID/status`: memory counters of a process.

use memtrace_model::{Pid, StatusCounters};

use super::smaps::kilobytes;
use crate::procfs::error::ProcessError;
use crate::procfs::kernel_files;
use crate::procfs::process::{failure, proc_path};

/// Reads the memory counters. From Linux 6.2 to 6.16, they may be wrong by some pages per CPU
/// (`percpu_counter_read_positive` in `get_mm_counter`, include/linux/mm.h).
///
/// # Errors
///
/// Errors of reading `/proc`: the process has exited, or permission is missing.
pub fn counted(pid: Pid) -> Result<StatusCounters, ProcessError> {
    let path = proc_path(pid, "status");
    let text = kernel_files::read(&path).map_err(|error| failure(pid, &path, error))?;
    // An exiting process has no memory, and the lines are missing (`proc_pid_status`, fs/proc/array.c).
    parse(&text).ok_or(ProcessError::Exited(pid))
}

/// Parses the counters; returns `None` without an RSS, as for a kernel thread.
fn parse(text: &[u8]) -> Option<StatusCounters> {
    let mut counted = StatusCounters::default();
    let mut has_rss = false;
    for line in text.split(|&byte| byte == b'\n') {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let field = match &line[..colon] {
            b"VmRSS" => {
                has_rss = true;
                &mut counted.rss
            }
            b"RssAnon" => &mut counted.anonymous,
            b"RssFile" => &mut counted.file,
            b"RssShmem" => &mut counted.shmem,
            b"VmHWM" => &mut counted.peak,
            b"VmSize" => &mut counted.virtual_size,
            b"VmSwap" => &mut counted.swap,
            b"VmPTE" => &mut counted.page_tables,
            _ => continue,
        };
        *field = kilobytes(&line[colon + 1..])?;
    }
    has_rss.then_some(counted)
}

#[cfg(test)]
mod tests {
    use memtrace_model::Bytes;

    use super::*;

    const RECORDED: &str = "\
Name:\tVmRSS:\\n 9 kB
Umask:\t0022
VmPeak:\t   30000 kB
VmSize:\t   20480 kB
VmLck:\t       0 kB
VmHWM:\t    9000 kB
VmRSS:\t    8192 kB
RssAnon:\t    4096 kB
RssFile:\t    3072 kB
RssShmem:\t    1024 kB
VmPTE:\t      64 kB
VmSwap:\t      12 kB
HugetlbPages:\t       0 kB
Threads:\t3
";

    #[test]
    fn a_name_cannot_forge_a_field() {
        let expected = StatusCounters {
            rss: Bytes(8 << 20),
            anonymous: Bytes(4 << 20),
            file: Bytes(3 << 20),
            shmem: Bytes(1 << 20),
            peak: Bytes(9000 << 10),
            virtual_size: Bytes(20 << 20),
            swap: Bytes(12 << 10),
            page_tables: Bytes(64 << 10),
        };
        assert_eq!(parse(RECORDED.as_bytes()), Some(expected));
    }

    #[test]
    fn no_memory_or_another_unit_yields_none() {
        assert_eq!(parse(b"Name:\tkthreadd\nThreads:\t1\n"), None);
        assert_eq!(parse(b"VmRSS:\t    8192 MB\n"), None);
        assert_eq!(parse(b"VmRSS:"), None);
        assert_eq!(parse(b"\xff:\n:"), None);
    }

    #[test]
    fn the_kinds_of_the_rss_add_up() {
        let own = counted(Pid(std::process::id())).unwrap();
        // The kernel computes the RSS as this sum (`task_mem`, fs/proc/task_mmu.c).
        assert_eq!(own.rss.0, own.anonymous.0 + own.file.0 + own.shmem.0);
        assert!(own.page_tables.0 > 0 && own.virtual_size >= own.rss && own.peak.0 > 0);
        assert!(matches!(counted(Pid(u32::MAX)), Err(ProcessError::Exited(_))));
    }
}
