//! Changes of the system's wall clock, for guests.

use std::io;
use std::time::{Duration, SystemTime};

/// A wall clock that was moved forward. Dropping it moves the clock back.
pub struct WallClock {
    shift: Duration,
}

impl WallClock {
    #[must_use]
    pub fn forward(shift: Duration) -> Self {
        set(SystemTime::now() + shift);
        Self { shift }
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        set(SystemTime::now() - self.shift);
    }
}

fn set(time: SystemTime) {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).expect("the clock is after 1970");
    let seconds = libc::time_t::try_from(since_epoch.as_secs()).expect("the clock is before the end of time_t");
    let time = libc::timespec { tv_sec: seconds, tv_nsec: since_epoch.subsec_nanos().into() };
    // SAFETY: the pointer is to a whole timespec.
    let result = unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) };
    assert_eq!(result, 0, "cannot set the clock: {}", io::Error::last_os_error());
}
