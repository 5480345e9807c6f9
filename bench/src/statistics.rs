//! Statistics of measurements.

use serde::Serialize;

/// Median and range of several measurements of one quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Returns the median and the range. All values are NaN if there are no measurements.
    pub(crate) fn new(measurements: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = measurements.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let nth = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        // The median is the mean of the two middle values. They are one value if the number of measurements is odd.
        Self { median: f64::midpoint(nth(last / 2), nth(last.div_ceil(2))), min: nth(0), max: nth(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_median_minimum_and_maximum() {
        assert_eq!(Spread::new([5.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 5.0 });
        assert_eq!(Spread::new([4.0, 1.0, 2.0, 9.0]), Spread { median: 3.0, min: 1.0, max: 9.0 });
        assert_eq!(Spread::new([7.0]), Spread { median: 7.0, min: 7.0, max: 7.0 });
        assert!(Spread::new([]).median.is_nan());
    }
}
