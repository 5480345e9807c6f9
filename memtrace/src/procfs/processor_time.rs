//! How much processor time a process has taken.

use std::mem::MaybeUninit;
use std::time::Duration;

use crate::model::Pid;

/// The processor time that all threads of a process have taken so far, to the nanosecond; `None` where it has ended.
#[must_use]
pub(crate) fn processor_time(pid: Pid) -> Option<Duration> {
    let mut clock = MaybeUninit::<libc::clockid_t>::zeroed();
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is to a whole clockid_t.
    let found = unsafe { libc::clock_getcpuclockid(pid.0.cast_signed(), clock.as_mut_ptr()) };
    // SAFETY: all zeros is a valid clockid_t, whatever the call did.
    let clock = unsafe { clock.assume_init() };
    // SAFETY: the pointer is to a whole timespec.
    let read = unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) };
    // SAFETY: all zeros is a valid timespec, whatever the call did.
    let time = unsafe { time.assume_init() };
    (found == 0 && read == 0)
        .then(|| Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_takes_time_and_one_that_is_not_there_none() {
        let own = Pid(std::process::id());
        let before = processor_time(own).unwrap();
        let mut sum = 0u64;
        while processor_time(own).unwrap() <= before {
            sum = std::hint::black_box(sum + 1);
        }
        assert_eq!(processor_time(Pid(u32::from(u16::MAX) << 8)), None);
    }
}
