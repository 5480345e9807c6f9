//! Page faults and peak RSS of a process.

use memtrace_model::{Bytes, PageFaults, Pid, Rusage};

use super::kernel_text::field;
use super::process::{proc_path, stat_fields};
use crate::procfs::kernel_files;

/// Returns the page faults of all threads of a process since its start, including exited threads, and the peak RSS
/// since its last exec; `None` if the process does not exist. A zombie has page faults and a peak RSS of 0.
#[must_use]
pub fn kernel_counts(pid: Pid) -> Option<Rusage> {
    let faults = page_faults(pid)?;
    let status = kernel_files::read(proc_path(pid, "status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let peak = field(&status, "VmHWM:").and_then(|size| size.trim().strip_suffix(" kB")?.parse().ok());
    Some(Rusage { faults, peak_rss: Bytes(peak.map_or(0, |kibibytes: u64| kibibytes * 1024)) })
}

/// Returns the page faults of all threads of a process since its start, including exited threads; `None` if the process
/// does not exist.
#[must_use]
pub fn page_faults(pid: Pid) -> Option<PageFaults> {
    let stat = kernel_files::read(proc_path(pid, "stat")).ok()?;
    let fields = stat_fields(&stat)?;
    // proc_pid_stat(5) counts fields from 1; the state is the third.
    let number = |field: usize| fields.get(field - 3)?.parse().ok();
    Some(PageFaults { minor: number(10)?, major: number(12)? })
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use harness::fixtures::Anonymous;
    use memtrace_model::PAGE;

    use super::*;

    #[test]
    fn page_faults_match_getrusage_and_rise_with_each_page() {
        let usage = || {
            let mut usage = MaybeUninit::<libc::rusage>::zeroed();
            // SAFETY: the pointer is to a whole structure.
            assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) }, 0);
            // SAFETY: zeroed, which is valid, and filled.
            let usage = unsafe { usage.assume_init() };
            (usage.ru_minflt.cast_unsigned(), usage.ru_majflt.cast_unsigned())
        };
        let own = || kernel_counts(Pid(std::process::id())).unwrap();
        // Other tests run at the same time.
        let (before, counts, after) = (usage(), own(), usage());
        assert!((before.0..=after.0).contains(&counts.faults.minor), "{before:?} {counts:?} {after:?}");
        assert!((before.1..=after.1).contains(&counts.faults.major), "{before:?} {counts:?} {after:?}");
        let memory = Anonymous::new(100 * PAGE.0);
        (0..100).for_each(|page| memory.touch(page * PAGE.0));
        assert!(own().faults.total() >= counts.faults.total() + 100);
        assert!(own().peak_rss >= Bytes(100 * PAGE.0));
        assert_eq!(kernel_counts(Pid(u32::MAX)), None);
    }
}
