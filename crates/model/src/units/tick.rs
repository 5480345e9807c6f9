//! Time stamps of records.

use std::time::Duration;

use memtrace_common::wire::TICK_SHIFT;

/// Time since tracing began, in ticks of 2^20 ns (about 1.05 ms).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u32);

impl Tick {
    /// Returns the tick at the time `elapsed` since the start of tracing. Times of more than 52 days have the largest
    /// tick.
    #[must_use]
    pub fn at(elapsed: Duration) -> Self {
        Self(u32::try_from(elapsed.as_nanos() >> TICK_SHIFT).unwrap_or(u32::MAX))
    }

    /// Returns the time from the start of tracing to this tick.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos((self.0 as u64) << TICK_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_two_to_the_twentieth_nanoseconds() {
        assert_eq!(Tick::at(Duration::from_nanos((1 << 20) - 1)), Tick(0));
        assert_eq!(Tick::at(Duration::from_nanos(1 << 20)), Tick(1));
        assert_eq!(Tick(3).since_start(), Duration::from_nanos(3 << 20));
        assert_eq!(Tick::at(Duration::from_secs(100 * 24 * 3600)), Tick(u32::MAX));
    }
}
