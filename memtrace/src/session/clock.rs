//! The monotonic clock, which BPF programs read too.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Returns the time of `CLOCK_MONOTONIC`.
pub(super) fn monotonic() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the clock exists on every Linux, and the pointer is to a whole timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    // SAFETY: all zeros is a valid timespec, whatever the call did.
    let time = unsafe { time.assume_init() };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
