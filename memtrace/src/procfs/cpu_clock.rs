//! CPU time of a process.

use std::mem::MaybeUninit;
use std::time::Duration;

use crate::model::Pid;

/// Returns the CPU time of all threads of a process so far, in nanoseconds; `None` if it has exited.
#[must_use]
pub(crate) fn processor_time(pid: Pid) -> Option<Duration> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
