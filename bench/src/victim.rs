//! Victims of the benchmarks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::options::Options;

/// Number of frames of the victim `pairs` that call malloc, directly or through other functions.
pub(crate) const FRAMES: usize = 5;

/// Returns the path of a compiled victim.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("OUT_DIR")).join(name)
}

/// Duration that the victim has measured for a number of pairs of malloc and free, or for a number of spans.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct PairTiming {
    pairs: u64,
    ns: u64,
    /// Number of the victim's threads that ran at a time.
    processors: u64,
}

impl PairTiming {
    /// Returns the processor time per pair, in nanoseconds.
    pub(crate) fn ns_per_pair(&self) -> f64 {
        (self.ns * self.processors) as f64 / self.pairs.max(1) as f64
    }

    /// Returns the number of pairs that take `time`.
    pub(crate) fn pairs_in(&self, time: Duration) -> u64 {
        let pairs = time.as_nanos() * u128::from(self.pairs) / u128::from(self.ns.max(1));
        u64::try_from(pairs).unwrap_or(u64::MAX)
    }
}

/// Measures all victims in turn, in each round. Returns the nanoseconds per pair, by victim and round. `work` runs a
/// number of pairs in a victim. `warm_up`: a number of pairs that is enough to estimate the number of pairs per slice.
pub(crate) fn measure_in_turn<V>(
    victims: &mut [V],
    warm_up: u64,
    options: &Options,
    work: impl Fn(&mut V, u64) -> PairTiming,
) -> Vec<Vec<f64>> {
    let mut pairs = Vec::new();
    for victim in victims.iter_mut() {
        // The first run is slower.
        work(victim, warm_up);
        pairs.push(work(victim, warm_up).pairs_in(options.slice).max(warm_up / 10));
    }
    let mut measured = vec![Vec::new(); victims.len()];
    for round in 0..options.rounds {
        eprintln!("    round {} of {}", round + 1, options.rounds);
        for ((victim, &pairs), measured) in victims.iter_mut().zip(&pairs).zip(&mut measured) {
            measured.push(work(victim, pairs).ns_per_pair());
        }
    }
    measured
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
