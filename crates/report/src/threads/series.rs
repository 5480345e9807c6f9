//! Values at consecutive points of a timeline.

use std::ops::Range;

/// A value that can be merged with the next one.
pub trait SeriesPoint: Copy {
    /// Merges the values of two consecutive points. `lengths`: durations of the points in seconds. At least one of
    /// `points` has a value.
    fn merged(points: [Option<Self>; 2], lengths: [f64; 2]) -> Self;
}

/// Values at some points of a timeline, usually at consecutive ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Series<P> {
    /// Index of the point with the first value.
    first: usize,
    values: Vec<Option<P>>,
}

impl<P> Default for Series<P> {
    fn default() -> Self {
        Self { first: 0, values: Vec::new() }
    }
}

impl<P: SeriesPoint> Series<P> {
    /// Returns the value at a point.
    #[must_use]
    pub fn at(&self, point: usize) -> Option<&P> {
        self.values.get(point.checked_sub(self.first)?)?.as_ref()
    }

    /// Sets the value at a point. Points must be set in ascending order.
    pub fn set(&mut self, point: usize, value: P) {
        if self.values.is_empty() {
            self.first = point;
        }
        let place = point.saturating_sub(self.first);
        if place >= self.values.len() {
            self.values.resize(place + 1, None);
        }
        self.values[place] = Some(value);
    }

    /// Returns the values with their points.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &P)> {
        self.values.iter().enumerate().filter_map(|(place, value)| Some((self.first + place, value.as_ref()?)))
    }

    /// Merges each group of points into one point. `lengths`: durations of all points in seconds.
    pub(super) fn merge(&mut self, groups: &[Range<usize>], lengths: &[f64]) {
        let mut merged = Self::default();
        for (at, group) in groups.iter().enumerate() {
            let mut value = self.at(group.start).copied();
            let mut before = 0.0;
            for (point, &length) in group.clone().zip(&lengths[group.clone()]) {
                let points = [value, self.at(point).copied()];
                if point > group.start && points.iter().any(Option::is_some) {
                    value = Some(P::merged(points, [before, length]));
                }
                before += length;
            }
            if let Some(value) = value {
                merged.set(at, value);
            }
        }
        *self = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Mean(f64);

    impl SeriesPoint for Mean {
        fn merged(points: [Option<Self>; 2], lengths: [f64; 2]) -> Self {
            let sum = |(point, length): (Option<Self>, f64)| point.map_or(0.0, |point| point.0 * length);
            Self(points.into_iter().zip(lengths).map(sum).sum::<f64>() / (lengths[0] + lengths[1]))
        }
    }

    #[test]
    fn values_are_at_their_points_after_a_merge() {
        let mut series = Series::default();
        assert_eq!(series.at(0), None);
        for (point, value) in [(3, 1.0), (4, 2.0), (7, 4.0)] {
            series.set(point, Mean(value));
        }
        let values = |series: &Series<Mean>| series.iter().map(|(point, value)| (point, value.0)).collect::<Vec<_>>();
        assert_eq!(values(&series), [(3, 1.0), (4, 2.0), (7, 4.0)]);
        assert_eq!((series.at(2), series.at(5), series.at(7), series.at(8)), (None, None, Some(&Mean(4.0)), None));
        series.merge(&[0..2, 2..5, 5..7, 7..8], &[1.0, 1.0, 1.0, 3.0, 6.0, 1.0, 1.0, 1.0]);
        assert_eq!(values(&series), [(1, 1.5), (3, 4.0)]);
        series.merge(&[0..1, 1..2], &[1.0; 2]);
        assert_eq!(values(&series), [(1, 1.5)]);
    }
}
