//! Scales of the time axis.

use std::time::Duration;

use memtrace_model::format::short;

use crate::axis::time_ticks;

/// Kind of a horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeAxis {
    /// Starts at 0.
    Linear,
    /// Starts at the largest power of ten, in seconds, that is not above the first time.
    Logarithmic,
}

/// Scale of a time axis.
pub(super) struct Scale {
    axis: TimeAxis,
    /// First and last value of the axis: seconds, or their logarithms to base 10.
    range: [f64; 2],
    last: Duration,
    /// The x coordinates of the left and the right end.
    ends: [f64; 2],
}

/// Returns the logarithm of a time in seconds to base 10.
fn logarithm(time: Duration) -> f64 {
    time.as_secs_f64().max(1e-9).log10()
}

impl Scale {
    /// Returns the scale for these times. `ends`: x coordinates of the left and the right end.
    pub(super) fn of(axis: TimeAxis, times: impl Iterator<Item = Duration> + Clone, ends: [f64; 2]) -> Self {
        let last = times.clone().max().unwrap_or_default();
        let range = match axis {
            TimeAxis::Linear => [0.0, last.as_secs_f64().max(1e-9)],
            TimeAxis::Logarithmic => {
                let first = times.min().map_or(0.0, logarithm).floor();
                [first, logarithm(last).max(first + 0.1)]
            }
        };
        Self { axis, range, last, ends }
    }

    /// Returns the x coordinate of a time.
    pub(super) fn x(&self, time: Duration) -> f64 {
        let value = match self.axis {
            TimeAxis::Linear => time.as_secs_f64(),
            TimeAxis::Logarithmic => logarithm(time),
        };
        let ([first, last], [left, right]) = (self.range, self.ends);
        left + ((value - first) / (last - first)).clamp(0.0, 1.0) * (right - left)
    }

    /// Returns the x coordinates of the ticks with their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.axis {
            TimeAxis::Linear => time_ticks(&(Duration::ZERO..self.last))
                .into_iter()
                .map(|(time, label)| (self.x(time), label))
                .collect(),
            TimeAxis::Logarithmic => {
                let [first, last] = self.range;
                // The casts saturate.
                let powers = first.ceil() as i32..=last.floor() as i32;
                let tick = |power: i32| {
                    let time = Duration::from_secs_f64(10_f64.powi(power.clamp(-9, 9)));
                    (self.x(time), short(time))
                };
                powers.map(tick).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn logarithmic_axis_starts_at_a_power_of_ten() {
        let times = [3, 40, 2000].map(Duration::from_millis);
        let scale = Scale::of(TimeAxis::Logarithmic, times.into_iter(), [0.0, 100.0]);
        assert_eq!(labels(&scale), ["1 ms", "10 ms", "100 ms", "1 s"]);
        assert!(scale.x(times[0]) > 0.0 && (scale.x(times[2]) - 100.0).abs() < 1e-6);
        let scale = Scale::of(TimeAxis::Linear, times.into_iter(), [0.0, 100.0]);
        assert!((scale.x(Duration::from_secs(1)) - 50.0).abs() < 1e-6);
        assert_eq!(labels(&scale).first().map(String::as_str), Some("0 s"));
    }
}
