//! Clocks that memtrace shares with BPF programs and perf events.

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use memtrace_host::procfs;

/// Returns the time of `CLOCK_MONOTONIC` in the initial time namespace. The kernel's own readings of the clock lack the
/// offset of a time namespace (time_namespaces(7)).
pub(crate) fn monotonic() -> Duration {
    static OFFSET: OnceLock<i128> = OnceLock::new();
    without_offset(read(libc::CLOCK_MONOTONIC), *OFFSET.get_or_init(procfs::monotonic_offset))
}

/// Returns the nanoseconds since the boot of the machine, as in the initial time namespace.
pub(crate) fn boot_ns() -> u64 {
    static OFFSET: OnceLock<i128> = OnceLock::new();
    let time = without_offset(read(libc::CLOCK_BOOTTIME), *OFFSET.get_or_init(procfs::boot_offset));
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the wall-clock time when `elapsed` was 0. A thread can be interrupted between the readings of the two clocks, so the
/// fastest of several pairs of readings counts.
pub(crate) fn wall_time_of_start(elapsed: impl Fn() -> Duration) -> SystemTime {
    let reading = |_| {
        let before = elapsed();
        let wall = SystemTime::now();
        (elapsed().saturating_sub(before), wall.checked_sub(before))
    };
    let closest = (0..5).map(reading).min_by_key(|(between, _)| *between);
    closest.and_then(|(_, start)| start).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the clock exists on every Linux, and the pointer is to a whole timespec.
    unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) };
    // SAFETY: all zeros is a valid timespec, even if the call fails.
    let time = unsafe { time.assume_init() };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn without_offset(shown: Duration, offset: i128) -> Duration {
    let nanoseconds = i128::try_from(shown.as_nanos()).unwrap_or(0) - offset;
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_of_the_namespace_is_removed() {
        let shown = Duration::from_secs(100);
        assert_eq!(without_offset(shown, 30_000_000_001), Duration::new(69, 999_999_999));
        assert_eq!(without_offset(shown, -1_000_000_000), Duration::from_secs(101));
    }
}
