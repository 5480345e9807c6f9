//! The victims of the benchmarks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// Number of the victim's own frames above malloc in `pairs`.
pub(crate) const FRAMES: usize = 5;

/// Returns the path of an executable of `victims/`.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("OUT_DIR")).join(name)
}

/// The victim's timing of a number of pairs of malloc and free.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct PairTiming {
    pairs: u64,
    ns: u64,
    /// Number of its threads that ran at a time.
    processors: u64,
}

impl PairTiming {
    /// Returns the processor time per pair in nanoseconds.
    pub(crate) fn ns_per_pair(&self) -> f64 {
        (self.ns * self.processors) as f64 / self.pairs.max(1) as f64
    }

    /// Returns the number of pairs that take `time`.
    pub(crate) fn pairs_in(&self, time: Duration) -> u64 {
        let pairs = time.as_nanos() * u128::from(self.pairs) / u128::from(self.ns.max(1));
        u64::try_from(pairs).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_per_pair_counts_all_busy_processors() {
        let timing = PairTiming { pairs: 1000, ns: 50_000, processors: 4 };
        assert!((timing.ns_per_pair() - 200.0).abs() < f64::EPSILON);
        assert_eq!(timing.pairs_in(Duration::from_micros(100)), 2000);
    }
}
