//! What memtrace itself takes, and the clock that it shares with the kernel half.

use std::mem::MaybeUninit;
use std::time::Duration;

use crate::model::{Bytes, Cost};

/// The monotonic clock, which programs in the kernel read too.
pub(super) fn monotonic_clock() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the clock exists on every Linux, and the pointer is to a whole timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    // SAFETY: all zeros is a valid timespec, whatever the call did.
    let time = unsafe { time.assume_init() };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What the run has cost until now.
pub(super) fn so_far(events: u64, nested: u64) -> Cost {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole rusage.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: all zeros is a valid rusage, whatever the call did.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Cost {
        events,
        nested,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        // ru_maxrss is in KiB (getrusage(2)).
        peak_rss: Bytes(usage.ru_maxrss.unsigned_abs() * 1024),
    }
}
