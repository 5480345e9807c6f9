//! CPU time of a process and of its children.

use std::mem::MaybeUninit;
use std::time::Duration;

use memtrace_model::Pid;

use super::process::{proc_path, stat_fields};
use super::schedstat::SchedulerTimes;
use crate::procfs::kernel_files;

/// Returns the CPU time of all threads of a process so far; `None` if the process has exited.
#[must_use]
pub fn processor_time(pid: Pid) -> Option<Duration> {
    let mut clock = MaybeUninit::<libc::clockid_t>::zeroed();
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is to a whole clockid_t.
    let looked_up = unsafe { libc::clock_getcpuclockid(pid.0.cast_signed(), clock.as_mut_ptr()) };
    // SAFETY: all zeros is a valid clockid_t, whatever the call did.
    let clock = unsafe { clock.assume_init() };
    // SAFETY: the pointer is to a whole timespec.
    let read = unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) };
    // SAFETY: all zeros is a valid timespec, whatever the call did.
    let time = unsafe { time.assume_init() };
    (looked_up == 0 && read == 0)
        .then(|| Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// Returns the CPU time of the children that a process has waited for, and of the children that these children have waited for;
/// `None` if the process has exited.
#[must_use]
pub fn processor_time_of_children(pid: Pid) -> Option<Duration> {
    let text = kernel_files::read(proc_path(pid, "stat")).ok()?;
    // `cutime` and `cstime`, in ticks: the fields 16 and 17 (proc_pid_stat(5)).
    let fields = stat_fields(&text)?;
    let ticks = fields.get(16 - 3..=17 - 3)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(ticks.saturating_mul(1000) / ticks_per_second()?))
}

/// Returns the time that the main thread of a process was runnable and waited for a processor; 0 if the kernel does not count
/// it.
pub(crate) fn time_without_processor(pid: Pid) -> Duration {
    let text = kernel_files::read_to_string(proc_path(pid, "schedstat")).unwrap_or_default();
    SchedulerTimes::parse(&text).waited
}

/// Returns the number of ticks per second of times in `/proc`.
pub(super) fn ticks_per_second() -> Option<u64> {
    // SAFETY: the call has no preconditions.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks_per_second).ok().filter(|&rate| rate > 0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn cpu_time_of_children_counts_once_they_are_waited_for() {
        let own = Pid(std::process::id());
        let before = processor_time_of_children(own).unwrap();
        // Counts to a million: several ticks of 10 ms.
        let mut child =
            Command::new("sh").args(["-c", "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done"]).spawn().unwrap();
        child.wait().unwrap();
        let waited = processor_time_of_children(own).unwrap();
        assert!(waited > before, "{waited:?} after {before:?}");
        assert_eq!(processor_time_of_children(Pid(u32::from(u16::MAX) << 8)), None);
    }

    #[test]
    fn time_without_a_processor_rises_if_two_programs_share_one() {
        let busy = |_| Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        let mut children = [0, 1].map(busy);
        let least = Duration::from_millis(50);
        while children.iter().any(|child| time_without_processor(Pid(child.id())) < least) {
            std::thread::yield_now();
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(time_without_processor(Pid(u32::from(u16::MAX) << 8)), Duration::ZERO);
    }

    #[test]
    fn cpu_time_rises_and_is_none_without_the_process() {
        let own = Pid(std::process::id());
        let before = processor_time(own).unwrap();
        let mut sum = 0u64;
        while processor_time(own).unwrap() <= before {
            sum = std::hint::black_box(sum + 1);
        }
        assert_eq!(processor_time(Pid(u32::from(u16::MAX) << 8)), None);
    }
}
