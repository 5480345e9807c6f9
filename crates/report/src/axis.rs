//! Ticks of axes and their labels.

use std::time::Duration;

use memtrace_model::format::{self, clock};

/// Unit of a vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    BytesPerSecond,
    /// Share of one processor, shown in percent.
    Processor,
}

impl Unit {
    /// Returns a value with its unit: `1.50 MiB`, `-3 B/s`, `12.5 %`.
    pub(crate) fn text(self, value: f64) -> String {
        let bytes = || {
            let sign = if value <= -0.5 { "-" } else { "" };
            // The cast saturates.
            format!("{sign}{}", format::bytes((value.round() as i64).unsigned_abs()))
        };
        match self {
            Self::Bytes => bytes(),
            Self::BytesPerSecond => format!("{}/s", bytes()),
            Self::Processor => format!("{:.1} %", value * 100.0),
        }
    }
}

/// Margin above the largest and below the smallest value, as a share of the range of the values.
const MARGIN: f64 = 0.06;

/// Vertical axis that contains all values and 0, with ticks at multiples of a step.
pub(crate) struct Axis {
    unit: Unit,
    step: f64,
    /// Smallest and largest value of the axis.
    range: [f64; 2],
}

impl Axis {
    /// Returns the axis for values from `least` to `most`, with about `count` ticks.
    pub(crate) fn of(unit: Unit, [least, most]: [f64; 2], count: usize) -> Self {
        let (least, most) = (least.min(0.0), most.max(0.0));
        let length = if most > least { most - least } else { 1.0 };
        let step = match unit {
            Unit::Bytes | Unit::BytesPerSecond => binary_step(length / count as f64),
            Unit::Processor => decimal_step(length * 100.0 / count as f64) / 100.0,
        };
        let margin = length * MARGIN;
        let below = if least < 0.0 { least - margin } else { 0.0 };
        let above = if most > 0.0 || least == 0.0 { (most + margin).max(step.min(length)) } else { 0.0 };
        Self { unit, step, range: [below, above] }
    }

    /// Returns the smallest and the largest value of the axis.
    pub(crate) const fn range(&self) -> [f64; 2] {
        self.range
    }

    /// Returns the ticks with their labels.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let [first, last] = self.range.map(|value| value / self.step);
        // The casts saturate.
        let ticks = first.ceil() as i32..=last.floor() as i32;
        ticks.map(|tick| (f64::from(tick) * self.step, self.label(f64::from(tick) * self.step)))
    }

    fn label(&self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => self.bytes(value, ""),
            Unit::BytesPerSecond => self.bytes(value, "/s"),
            Unit::Processor => format!("{} %", trimmed(value * 100.0)),
        }
    }

    /// Returns the label of a value in bytes. The unit is the largest one that is at most the greatest value of the
    /// axis and at most four steps, so that labels have at most two decimals.
    fn bytes(&self, value: f64, per: &str) -> String {
        if value == 0.0 {
            return String::from("0");
        }
        let greatest = self.range[1].max(-self.range[0]);
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut unit = 0;
        let mut scale = 1.0;
        while unit + 1 < units.len() && greatest >= scale * 1024.0 && self.step >= scale * 256.0 {
            scale *= 1024.0;
            unit += 1;
        }
        format!("{} {}{per}", trimmed(value / scale), units[unit])
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the smallest power of two that is not below `least`, and not below 1.
fn binary_step(least: f64) -> f64 {
    least.max(1.0).log2().ceil().exp2()
}

/// Returns the smallest number that is 1, 2 or 5 times a power of ten and not below `least`.
fn decimal_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-3).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(power * 10.0)
}

/// Possible distances between ticks of the time axis, in milliseconds.
const TIME_STEPS: [u64; 28] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    15_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    900_000,
    1_800_000,
    3_600_000,
    7_200_000,
    10_800_000,
    21_600_000,
    43_200_000,
    86_400_000,
    604_800_000,
];
/// Maximum number of intervals between ticks of the time axis.
const TIME_TICKS: u64 = 12;

/// Returns the ticks of a range of time with their labels.
pub(crate) fn time_ticks(span: &std::ops::Range<Duration>) -> Vec<(Duration, String)> {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let [start, end] = [milliseconds(span.start), milliseconds(span.end)];
    let length = end.saturating_sub(start);
    let longest = TIME_STEPS[TIME_STEPS.len() - 1];
    let step = TIME_STEPS.into_iter().find(|step| length / step <= TIME_TICKS);
    let step = step.unwrap_or_else(|| longest * (length / longest / TIME_TICKS + 1));
    let label = |at: u64| match Duration::from_millis(at) {
        time if step >= 1000 && end >= 60_000 => clock(time),
        time if step >= 1000 => format!("{} s", time.as_secs()),
        time => format!("{} s", trimmed_to_milliseconds(time)),
    };
    let first = start.div_ceil(step);
    (first..=end / step).map(|tick| (Duration::from_millis(tick * step), label(tick * step))).collect()
}

fn trimmed_to_milliseconds(time: Duration) -> String {
    let text = format!("{:.3}", time.as_secs_f64());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(unit: Unit, range: [f64; 2]) -> Vec<String> {
        Axis::of(unit, range, 5).ticks().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        let mib = f64::from(1 << 20);
        assert_eq!(labels(Unit::Bytes, [0.0, 100.0 * mib]), ["0", "32 MiB", "64 MiB", "96 MiB"]);
        assert_eq!(
            labels(Unit::Bytes, [-1.5 * mib, 0.9 * mib]),
            ["-1.5 MiB", "-1 MiB", "-0.5 MiB", "0", "0.5 MiB", "1 MiB"]
        );
        assert_eq!(labels(Unit::Bytes, [-mib, 900.0 * mib]), ["0", "256 MiB", "512 MiB", "768 MiB"]);
        assert_eq!(labels(Unit::Bytes, [0.0, 0.0]), ["0", "1 B"]);
        assert_eq!(labels(Unit::Bytes, [-8.0, 0.0]), ["-8 B", "-6 B", "-4 B", "-2 B", "0"]);
        let rates = ["0", "1 KiB/s", "2 KiB/s", "3 KiB/s", "4 KiB/s", "5 KiB/s"];
        assert_eq!(labels(Unit::BytesPerSecond, [0.0, 4.9 * 1024.0]), rates);
        assert_eq!(labels(Unit::Processor, [0.0, 3.3]), ["0 %", "100 %", "200 %", "300 %"]);
        assert_eq!(labels(Unit::Processor, [0.0, 0.0031]), ["0 %", "0.1 %", "0.2 %", "0.3 %"]);
        for range in [[-9e18, 9e18], [-3.0, 700.0], [5.0, 6.0], [-6.0, -5.0], [0.0, 0.001]] {
            for unit in [Unit::Bytes, Unit::Processor] {
                let [least, most] = Axis::of(unit, range, 5).range();
                assert!(least <= range[0].min(0.0) && most >= range[1].max(0.0) && least < most, "{range:?}");
                assert!((1..=12).contains(&Axis::of(unit, range, 5).ticks().count()), "{range:?}");
            }
        }
    }

    #[test]
    fn ticks_of_time_are_round() {
        let labels = |start: u64, end: u64| {
            let ticks = time_ticks(&(Duration::from_millis(start)..Duration::from_millis(end)));
            ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(0, 12_000), "0 s 1 s 2 s 3 s 4 s 5 s 6 s 7 s 8 s 9 s 10 s 11 s 12 s");
        assert_eq!(labels(0, 180_000), "0:00 0:15 0:30 0:45 1:00 1:15 1:30 1:45 2:00 2:15 2:30 2:45 3:00");
        assert_eq!(labels(300, 1_050), "0.3 s 0.4 s 0.5 s 0.6 s 0.7 s 0.8 s 0.9 s 1 s");
        assert_eq!(
            labels(0, 86_400_000),
            "0:00 2:00:00 4:00:00 6:00:00 8:00:00 10:00:00 12:00:00 14:00:00 16:00:00 18:00:00 20:00:00 22:00:00 24:00:00"
        );
        assert_eq!(labels(0, 0), "0 s");
        assert!(time_ticks(&(Duration::ZERO..Duration::from_secs(u64::MAX / 2000))).len() <= 14);
    }

    #[test]
    fn values_have_their_unit() {
        assert_eq!(Unit::Bytes.text(-1536.0), "-1.50 KiB");
        assert_eq!(Unit::BytesPerSecond.text(0.2), "0 B/s");
        assert_eq!(Unit::Processor.text(1.255), "125.5 %");
    }
}
