//! Uncertainty of an estimate from sampled blocks, and its texts.

use memtrace_model::format as number;
use memtrace_model::{Bytes, Measure};

use super::margin::Margin;

/// Minimum number of samples for a text with `±`. With fewer samples, the asymmetric interval is given by its ends.
const SYMMETRIC: u64 = 30;

/// Uncertainty of an estimate from sampled blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uncertainty {
    /// Number of samples.
    pub(super) samples: u64,
    /// Distances from the estimate to the ends of its interval.
    pub(super) margin: Margin,
}

impl Uncertainty {
    /// Uncertainty of an exact number.
    pub(crate) const EXACT: Self = Self { samples: 0, margin: Margin { below: 0, above: 0 } };

    /// Returns the uncertainty with the larger distance on both sides.
    pub(super) fn symmetric(self) -> Self {
        Self { margin: self.margin.symmetric(), ..self }
    }

    /// Returns the distances from the estimate to the ends of its interval.
    pub(crate) const fn margin(self) -> Margin {
        self.margin
    }

    /// Returns the ends of the interval of an estimate that is not negative.
    pub(crate) const fn ends(self, estimate: u64) -> [u64; 2] {
        [estimate.saturating_sub(self.margin.below), estimate.saturating_add(self.margin.above)]
    }

    /// Returns the text that follows an estimate: ` ± 1.20 MiB`, or ` (3.10 to 7.80 MiB)` if there are few samples. Returns
    /// an empty text if the number is exact.
    pub(crate) fn suffix(self, measure: Measure, estimate: u64) -> String {
        let shown = |value| long(measure, value);
        self.text(" ± ", shown, || self.ends(estimate).map(shown))
    }

    /// Returns the text of [`Self::suffix`] without the blank and the parentheses: `± 1.20 MiB` or `3.10 to 7.80 MiB`.
    pub(crate) fn phrase(self, measure: Measure, estimate: u64) -> String {
        String::from(self.suffix(measure, estimate).trim_start().trim_start_matches('(').trim_end_matches(')'))
    }

    /// Returns the text that follows an estimate in a cell of a table: ` ±1.20M` or ` (3.10M to 7.80M)`.
    pub(crate) fn cell_suffix(self, measure: Measure, estimate: u64) -> String {
        let shown = |value| compact(measure, value);
        self.text(" ±", shown, || self.ends(estimate).map(shown))
    }

    /// Returns the text that follows the difference of two estimates: as [`Self::suffix`], with the signs of both ends.
    pub(crate) fn change_suffix(self, measure: Measure, change: i128) -> String {
        let ends = [change - i128::from(self.margin.below), change + i128::from(self.margin.above)];
        let signed = |end: i128| {
            let size = u64::try_from(end.unsigned_abs()).unwrap_or(u64::MAX);
            format!("{}{}", if end < 0 { '-' } else { '+' }, long(measure, size))
        };
        self.text(" ± ", |value| long(measure, value), || ends.map(signed))
    }

    /// Returns the uncertainty of an estimate minus another one.
    pub(crate) fn minus(self, subtracted: Self) -> Self {
        let samples = self.samples.saturating_add(subtracted.samples);
        Self { samples, margin: self.margin.minus(subtracted.margin) }
    }

    /// `sign`: text before half of the width of the interval. `ends`: texts of both ends.
    fn text(self, sign: &str, shown: impl Fn(u64) -> String, ends: impl FnOnce() -> [String; 2]) -> String {
        if self.margin == Self::EXACT.margin {
            return String::new();
        }
        if self.samples >= SYMMETRIC || self.margin.below == self.margin.above {
            return format!("{sign}{}", shown(self.margin.half_width()));
        }
        let [low, high] = ends();
        format!(" ({})", range(&low, &high))
    }
}

fn long(measure: Measure, value: u64) -> String {
    match measure {
        Measure::Bytes => Bytes(value).to_string(),
        Measure::Count | Measure::Time => number::grouped(value),
    }
}

fn compact(measure: Measure, value: u64) -> String {
    match measure {
        Measure::Bytes => Bytes(value).compact(),
        Measure::Count | Measure::Time => number::compact(value),
    }
}

/// Returns both ends of an interval: `3.10 to 7.80 MiB`. If both have the same unit, the unit is written once.
fn range(low: &str, high: &str) -> String {
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn few_samples_have_both_ends() {
        let few = Uncertainty { samples: 10, margin: Margin { below: 2 * MIB, above: 3 * MIB } };
        assert_eq!(few.suffix(Measure::Bytes, 5 * MIB), " (3.00 to 8.00 MiB)");
        assert_eq!(few.suffix(Measure::Bytes, 2 * MIB), " (0 B to 5.00 MiB)");
        assert_eq!(few.cell_suffix(Measure::Bytes, 5 * MIB), " (3.00M to 8.00M)");
        assert_eq!(few.phrase(Measure::Bytes, 5 * MIB), "3.00 to 8.00 MiB");
        let count = Uncertainty { samples: 10, margin: Margin { below: 1_000, above: 3_500 } };
        assert_eq!(count.suffix(Measure::Count, 2_570), " (1,570 to 6,070)");
        assert_eq!(count.ends(400), [0, 3_900]);
    }

    #[test]
    fn many_samples_have_half_of_the_width() {
        let margin = Margin { below: 2 * MIB, above: 3 * MIB };
        let many = |samples| Uncertainty { samples, margin }.suffix(Measure::Bytes, 50 * MIB);
        assert_eq!((many(30).as_str(), many(29).as_str()), (" ± 2.50 MiB", " (48.00 to 53.00 MiB)"));
        let change = Uncertainty { samples: 3, margin }.symmetric();
        assert_eq!(change.suffix(Measure::Bytes, MIB.wrapping_neg()), " ± 3.00 MiB");
        assert_eq!(change.cell_suffix(Measure::Count, 7), " ±3.15M");
    }

    #[test]
    fn ends_of_a_change_have_signs() {
        let before = Uncertainty { samples: 4, margin: Margin { below: 30, above: 40 } };
        let after = Uncertainty { samples: 9, margin: Margin { below: 30, above: 60 } };
        // √(30² + 40²) = 50, √(60² + 30²) = 67.1.
        let change = after.minus(before);
        assert_eq!(change, Uncertainty { samples: 13, margin: Margin { below: 50, above: 68 } });
        assert_eq!(change.change_suffix(Measure::Bytes, 20), " (-30 to +88 B)");
        assert_eq!(change.change_suffix(Measure::Count, -90), " (-140 to -22)");
        let many = Uncertainty { samples: 30, ..change };
        assert_eq!(many.change_suffix(Measure::Bytes, -20), " ± 59 B");
        assert_eq!(change.change_suffix(Measure::Bytes, i128::from(u64::MAX)), " (+16.00 to +16.00 EiB)");
    }

    #[test]
    fn exact_numbers_have_no_text() {
        let exact = Uncertainty { samples: 5, margin: Margin::default() };
        let texts = [exact.suffix(Measure::Bytes, 7), exact.cell_suffix(Measure::Count, 7)];
        assert_eq!(texts, ["", ""]);
    }
}
