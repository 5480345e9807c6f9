//! Use of the last-level cache.

use std::time::Duration;

/// Minimum number of references per second. With fewer references, the result is [`CacheFit::Unknown`].
const MANY: f64 = 1e6;
/// Minimum share of hits for [`CacheFit::Fits`].
const FITS: f64 = 0.98;

/// Use of the last-level cache by processes, in user mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Number of references: misses of the smaller caches.
    pub references: u64,
    /// Number of references that were not in the cache.
    pub misses: u64,
}

/// Relation of a working set to the size of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheFit {
    /// The number of references is too small for a conclusion.
    Unknown,
    /// There are many references, and nearly all were in the cache.
    Fits,
    /// Many references were not in the cache.
    Exceeds,
}

impl CacheUse {
    /// Returns the share of references that were in the cache, from 0 to 1; `None` without references. The PMU may have
    /// counted references and misses at different times, so there can be more misses than references.
    #[must_use]
    pub fn hits(&self) -> Option<f64> {
        (self.references > 0).then(|| (1.0 - self.misses as f64 / self.references as f64).max(0.0))
    }

    /// Returns the relation of the working set to the cache. `during` is the time of the measurement.
    #[must_use]
    pub fn fit(&self, during: Duration) -> CacheFit {
        match self.hits() {
            Some(hits) if self.references as f64 >= MANY * during.as_secs_f64() => {
                if hits >= FITS {
                    CacheFit::Fits
                } else {
                    CacheFit::Exceeds
                }
            }
            _ => CacheFit::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hits_mean_that_a_working_set_fits() {
        let fit = |references, misses| CacheUse { references, misses }.fit(Duration::from_secs(2));
        assert_eq!(fit(2_000_000, 40_000), CacheFit::Fits);
        assert_eq!(fit(2_000_000, 40_001), CacheFit::Exceeds);
        assert_eq!(fit(1_999_999, 0), CacheFit::Unknown);
        assert_eq!(fit(0, 0), CacheFit::Unknown);
        assert_eq!(CacheUse { references: 4, misses: 1 }.hits(), Some(0.75));
        assert_eq!(CacheUse { references: 4, misses: 5 }.hits(), Some(0.0));
    }
}
