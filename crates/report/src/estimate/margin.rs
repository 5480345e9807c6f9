//! Ends of the intervals of estimates.

/// Number of standard deviations in a reported error. Five of a hundred intervals do not contain the true number.
const DEVIATIONS: f64 = 1.96;

/// Distances from an estimate to the ends of its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Margin {
    /// Distance to the lower end.
    pub(crate) below: u64,
    /// Distance to the upper end. For a single estimate, it is at least the distance to the lower end.
    pub(crate) above: u64,
}

impl Margin {
    /// Returns the margin of an estimate with this estimated variance. `unit`: the variance divided by the estimate. For an
    /// estimate without samples, it is the amount that a sample would stand for.
    ///
    /// The interval is the score interval of a Poisson count (Brown, Cai and DasGupta, "Interval Estimation in Exponential
    /// Families", 2003). With z deviations, the variance V and the unit c, the distances are z·√(V + c²·z²/4) ± c·z²/2.
    /// Unlike z·√V, they are valid even for few samples or none. If each block is sampled with the probability p, then c is
    /// (1 - p)/p blocks, and the interval is the score interval of a binomial count.
    pub(super) fn of_score(variance: u128, unit: f64) -> Self {
        let half = unit * DEVIATIONS / 2.0;
        let root = (variance as f64 + half * half).sqrt();
        Self { below: rounded_up(DEVIATIONS * (root - half)), above: rounded_up(DEVIATIONS * (half + root)) }
    }

    /// Returns the margin with the larger distance on both sides, for a change in either direction.
    pub(super) fn symmetric(self) -> Self {
        let larger = self.below.max(self.above);
        Self { below: larger, above: larger }
    }

    /// Returns the variance of an estimate with a margin by [`Self::of_score`]: the product of the distances is V·z².
    #[expect(clippy::cast_sign_loss, reason = "no distance is below zero")]
    pub(crate) fn variance(self) -> u128 {
        (self.below as f64 * self.above as f64 / (DEVIATIONS * DEVIATIONS)).round() as u128
    }

    /// Returns half of the width of the interval.
    pub(crate) const fn half_width(self) -> u64 {
        self.below.midpoint(self.above)
    }

    /// Returns the margin of an estimate minus another one.
    ///
    /// Its distances are roots of sums of squares, so that the variances of both estimates add up (Newcombe, "Interval
    /// Estimation for the Difference Between Independent Proportions", 1998). This holds for different samples. If both
    /// estimates have samples in common, their errors cancel each other in part, and the true margin is smaller.
    pub(crate) fn minus(self, subtracted: Self) -> Self {
        let both = |one: u64, other: u64| rounded_up((one as f64).hypot(other as f64));
        Self { below: both(self.below, subtracted.above), above: both(self.above, subtracted.below) }
    }
}

#[expect(clippy::cast_sign_loss, reason = "roots are at least zero, and the root of the score is at least its half")]
fn rounded_up(distance: f64) -> u64 {
    distance.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_score_interval() {
        // Four samples of one unit each: 4 + 1.9208 ± 1.96·√(4 + 0.9604) = 5.9208 ± 4.3653, so the ends are 1.5555 and
        // 10.2861. In thousandths:
        assert_eq!(Margin::of_score(4_000_000, 1000.0), Margin { below: 2445, above: 6287 });
        // No sample: the ends are 0 and 3.8416.
        assert_eq!(Margin::of_score(0, 1000.0), Margin { below: 0, above: 3842 });
        assert_eq!(Margin::of_score(0, 0.0), Margin::default());
        assert_eq!(Margin { below: 2445, above: 6287 }.half_width(), 4366);
    }

    #[test]
    fn variance_follows_from_the_distances() {
        // 2445 · 6287 / 3.8416 = 4,001,383.5: the distances are rounded up.
        assert_eq!(Margin::of_score(4_000_000, 1000.0).variance(), 4_001_384);
        assert_eq!(Margin::of_score(0, 1000.0).variance(), 0);
        for (variance, unit) in [(1_u128 << 50, 1000.0), (7 << 60, 524_288.0), (1 << 90, 1e6)] {
            let error = Margin::of_score(variance, unit).variance() as f64 / variance as f64 - 1.0;
            assert!(error.abs() < 1e-6, "{error}");
        }
    }

    #[test]
    fn a_difference_has_the_sum_of_the_variances() {
        let [after, before] = [Margin { below: 30, above: 80 }, Margin { below: 60, above: 40 }];
        // √(30² + 40²) = 50 and √(80² + 60²) = 100.
        assert_eq!(after.minus(before), Margin { below: 50, above: 100 });
        assert_eq!(after.minus(Margin::default()), after);
        assert_eq!(Margin { below: 3, above: 7 }.symmetric(), Margin { below: 7, above: 7 });
    }
}
