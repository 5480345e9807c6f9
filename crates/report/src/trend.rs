//! Trends of live memory over the parts of a recording.
//!
//! Growth that happened once is harmless; growth that continues is not. A trend distinguishes them by rules on the
//! changes in each part. The guide (`docs/guide/recordings.md`) lists the rules with their thresholds.

use std::ops::Range;
use std::time::Duration;

use memtrace_model::format as number;
use memtrace_model::{Bytes, LiveChanges, PartChange, Profile, Quantities, Quantity};

use crate::estimate::SampledPart;
use crate::format;

/// Minimum number of parts from the first change to the end. If there are fewer, growth is [`Kind::Recent`].
const FEWEST: usize = 4;

/// Kind of a trend. Parts are weighted by their duration, because old parts of a recording can be longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Live memory grew in at least three quarters of the time, and the decreases are at most half of the growth. No
    /// part has a share of the growth that exceeds its share of the time by more than 25 percentage points.
    SteadyGrowth,
    /// At least four fifths of the growth were in one part or in two successive parts, these parts are at most half
    /// of the time, and the decreases are at most a fifth of the growth.
    SingleGrowth,
    /// In the second half of the time, at least twice the growth was allocated, and live memory changed by at most a
    /// tenth of the growth.
    Churn,
    /// The first change was in one of the last three parts.
    Recent,
    /// The decreases exceed the growth.
    Decrease,
    /// One of the rules for growth or decrease matches, but the change is not larger than its error. Only estimates from
    /// sampled blocks have an error.
    WithinError,
    /// None of these.
    Irregular,
}

impl Kind {
    /// Returns the name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SteadyGrowth => "steady_growth",
            Self::SingleGrowth => "single_growth",
            Self::Churn => "churn",
            Self::Recent => "recent",
            Self::Decrease => "decrease",
            Self::WithinError => "within_error",
            Self::Irregular => "irregular",
        }
    }
}

/// Trend of a stack or a site.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trend {
    pub(super) kind: Kind,
    /// Parts of the recording, from the part with the first change.
    parts: Vec<Range<Duration>>,
    /// Change of live bytes in each of `parts`.
    changes: Vec<i64>,
    /// Index of the first part of the second half of the time.
    second_half: usize,
    /// Bytes allocated in the second half of the time.
    late_alloc: u64,
    /// Error of the sum of `changes` in bytes; 0 if the changes are exact.
    error: u64,
}

impl Trend {
    /// Returns the trend of live bytes with these changes; `None` if the changes are unknown or all 0. `usage`: totals of the
    /// stack or site. The changes have the error of the live bytes of this stack or site, because they add up to these
    /// bytes. Sampled blocks from before the trace are an exception: they are live, but not a change.
    pub(super) fn of(profile: &Profile, changes: &LiveChanges, usage: &Quantities) -> Option<Self> {
        let uncertainty = SampledPart::of_stack(usage).uncertainty(profile, Quantity::LiveBytes);
        let error = uncertainty.map_or(0, |uncertainty| uncertainty.margin().half_width());
        Self::with_error(&profile.run.parts, changes.as_slice(), error)
    }

    fn with_error(parts: &[Range<Duration>], changes: &[PartChange], error: u64) -> Option<Self> {
        let first = changes.iter().position(|change| change.live != 0).filter(|_| parts.len() == changes.len())?;
        let (parts, changes) = (parts[first..].to_vec(), &changes[first..]);
        let second_half = second_half(&parts);
        let late = &changes[second_half..];
        // A stack that a ledger has merged loses its allocations, so a change can be negative.
        let allocated = |change: &PartChange| change.alloc.cast_signed().max(0).unsigned_abs();
        let late_alloc = late.iter().map(allocated).fold(0, u64::saturating_add);
        let changes = changes.iter().map(|change| change.live).collect();
        let mut trend = Self { kind: Kind::Irregular, parts, changes, second_half, late_alloc, error };
        let kind = trend.kind();
        let is_claim = matches!(kind, Kind::SteadyGrowth | Kind::SingleGrowth | Kind::Decrease);
        let is_within = error > 0 && sum(&trend.changes).unsigned_abs() <= error;
        trend.kind = if is_claim && is_within { Kind::WithinError } else { kind };
        Some(trend)
    }

    /// Returns the kind of exact changes.
    fn kind(&self) -> Kind {
        let (grown, shrunk) = (self.sum(|change| change > 0), self.sum(|change| change < 0));
        let late_change = sum(&self.changes[self.second_half..]).unsigned_abs();
        if shrunk > grown {
            Kind::Decrease
        } else if self.changes.len() < FEWEST {
            Kind::Recent
        } else if self.late_alloc / 2 >= grown && late_change <= grown / 10 {
            Kind::Churn
        } else if self.is_single_growth(grown) && shrunk <= grown / 5 {
            Kind::SingleGrowth
        } else if self.time_of_growth() >= self.time() * 3 / 4 && self.is_even(grown) && shrunk <= grown / 2 {
            Kind::SteadyGrowth
        } else {
            Kind::Irregular
        }
    }

    /// Returns the trend in words, with numbers.
    pub(super) fn text(&self) -> String {
        let count = |is: fn(&i64) -> bool| self.changes.iter().filter(|change| is(change)).count();
        let (grew, shrank, all) = (count(|change| *change > 0), count(|change| *change < 0), self.changes.len());
        let span = |parts: &[Range<Duration>]| {
            let [start, end] = [parts.first().map(|part| part.start), parts.last().map(|part| part.end)]
                .map(|time| number::duration(time.unwrap_or_default()));
            format!("from +{start} to +{end}")
        };
        let net = sum(&self.changes);
        let whole = span(&self.parts);
        match self.kind {
            Kind::SteadyGrowth => {
                format!("steady growth: {} in {grew} of {all} parts {whole}", rate(net, self.time()))
            }
            Kind::SingleGrowth => {
                let (at, bytes) = self.largest_growth();
                let when = span(&self.parts[at]);
                format!("single growth: {} {when}", format::change(Bytes(bytes)))
            }
            Kind::Churn => {
                let half = self.second_half;
                let change = format::change(Bytes(sum(&self.changes[half..]).cast_unsigned()));
                format!("churn: {} allocated, {change} live {}", Bytes(self.late_alloc), span(&self.parts[half..]))
            }
            Kind::Recent => format!("recent: first changed {}", span(&self.parts[..1])),
            Kind::Decrease => format!("decrease: {} in {shrank} of {all} parts {whole}", rate(net, self.time())),
            Kind::WithinError => {
                let change = format::change(Bytes(net.cast_unsigned()));
                format!("within the error: {change} ± {} {whole}", Bytes(self.error))
            }
            Kind::Irregular => {
                let sum = |bytes| format::change(Bytes(bytes));
                let grown = format!("{} in {grew} parts", sum(self.sum(|change| change > 0)));
                let shrunk = sum(self.sum(|change| change < 0).wrapping_neg());
                let shrunk = if shrank > 0 { format!(", {shrunk} in {shrank}") } else { String::new() };
                format!("irregular: {grown}{shrunk}, of {all} {whole}")
            }
        }
    }

    /// Returns the sum of the absolute values of all changes that satisfy `is`.
    fn sum(&self, is: impl Fn(i64) -> bool) -> u64 {
        self.changes
            .iter()
            .filter(|change| is(**change))
            .fold(0, |sum: u64, change| sum.saturating_add(change.unsigned_abs()))
    }

    /// Returns the part with the most growth if it has four fifths of all growth, or else the two successive parts
    /// with the most growth. Also returns their growth in bytes.
    fn largest_growth(&self) -> (Range<usize>, u64) {
        let growth: Vec<u64> = self.changes.iter().map(|change| (*change).max(0).unsigned_abs()).collect();
        let sum =
            |parts: &Range<usize>| growth[parts.clone()].iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
        // `max_by_key` returns the last of equal elements, and the reversal makes it the first.
        let largest = |length: usize| (0..=growth.len() - length).map(|at| at..at + length).rev().max_by_key(sum);
        let all = sum(&(0..growth.len()));
        let single = largest(1).filter(|part| sum(part) >= share(all, 4, 5) || growth.len() == 1);
        let parts = single.or_else(|| largest(2)).unwrap_or(0..0);
        let bytes = sum(&parts);
        (parts, bytes)
    }

    /// Returns true if four fifths of the growth were in one or two successive parts that are at most half of the
    /// time.
    fn is_single_growth(&self, grown: u64) -> bool {
        let (parts, growth) = self.largest_growth();
        let time: Duration = self.parts[parts].iter().map(length).sum();
        growth >= share(grown, 4, 5) && time <= self.time() / 2
    }

    /// Returns true if the growth is spread over the time, as [`Kind::SteadyGrowth`] requires.
    fn is_even(&self, grown: u64) -> bool {
        let time = self.time().as_secs_f64();
        let is_even = |(part, change): (&Range<Duration>, &i64)| {
            *change as f64 <= grown as f64 * (length(part).as_secs_f64() / time + 0.25)
        };
        self.parts.iter().zip(&self.changes).all(is_even)
    }

    fn time(&self) -> Duration {
        self.parts.iter().map(length).sum()
    }

    /// Returns the total duration of the parts with growth.
    fn time_of_growth(&self) -> Duration {
        self.parts.iter().zip(&self.changes).filter(|(_, change)| **change > 0).map(|(part, _)| length(part)).sum()
    }
}

/// Returns the index of the first part that starts in the second half of the time, or of the last part if there is
/// none.
fn second_half(parts: &[Range<Duration>]) -> usize {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return 0 };
    let middle = first.start + last.end.saturating_sub(first.start) / 2;
    parts.iter().position(|part| part.start >= middle).unwrap_or(parts.len() - 1)
}

/// Returns the sum of changes. It saturates, because the sum of a damaged recording can overflow.
fn sum(changes: &[i64]) -> i64 {
    changes.iter().fold(0, |sum, change| sum.saturating_add(*change))
}

fn length(part: &Range<Duration>) -> Duration {
    part.end.saturating_sub(part.start)
}

const fn share(number: u64, of: u64, parts: u64) -> u64 {
    number / parts * of
}

/// Returns a change during `time` as a rate per second, minute or hour: `+1.50 MiB/min`.
fn rate(change: i64, time: Duration) -> String {
    let units = [("s", 1.0), ("min", 60.0), ("h", 3600.0)];
    let per = |seconds: f64| (change as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE) * seconds) as i64;
    let fits = units.into_iter().find(|(_, seconds)| per(*seconds).unsigned_abs() >= 1024);
    let (unit, seconds) = fits.unwrap_or(("h", 3600.0));
    format!("{}/{unit}", format::change(Bytes(per(seconds).cast_unsigned())))
}

#[cfg(test)]
mod tests {
    use memtrace_model::{Amount, Pid, RunFacts, SampleSource, Sampler, Variance};

    use super::*;

    /// Returns the trend of changes in KiB, in parts of two seconds. In each part, `alloc` KiB are allocated.
    fn trend(changes: &[i64], alloc: u64) -> Trend {
        let second = |number: usize| Duration::from_secs(2 * number as u64);
        let parts: Vec<_> = (0..changes.len()).map(|at| second(at)..second(at + 1)).collect();
        let mut live = LiveChanges::default();
        changes.iter().enumerate().for_each(|(at, change)| {
            live.add(at, changes.len(), PartChange { live: change * 1024, alloc: alloc * 1024 });
        });
        Trend::with_error(&parts, live.as_slice(), 0).unwrap()
    }

    #[track_caller]
    fn check(changes: &[i64], alloc: u64, kind: Kind, text: &str) {
        let trend = trend(changes, alloc);
        assert_eq!((trend.kind, trend.text().as_str()), (kind, text));
    }

    #[test]
    fn steady_growth_has_its_rate() {
        let text = "steady growth: +5.00 KiB/s in 8 of 8 parts from +0 s to +16 s";
        check(&[10; 8], 10, Kind::SteadyGrowth, text);
        // Temporary blocks do not change the trend.
        check(&[10; 8], 1000, Kind::SteadyGrowth, text);
        // An hour of slow growth.
        let hour: Vec<_> =
            (0..8).map(|at| Duration::from_secs(450 * at)..Duration::from_secs(450 * (at + 1))).collect();
        let mut live = LiveChanges::default();
        (0..8).for_each(|at| live.add(at, 8, PartChange { live: 16 << 10, alloc: 16 << 10 }));
        let trend = Trend::with_error(&hour, live.as_slice(), 0).unwrap();
        assert_eq!(trend.text(), "steady growth: +2.13 KiB/min in 8 of 8 parts from +0 s to +1 h");
    }

    #[test]
    fn long_parts_have_more_growth() {
        let part = |start: u64, end: u64| Duration::from_secs(start)..Duration::from_secs(end);
        // The old part is as long as all other parts together.
        let parts: Vec<_> =
            [part(0, 80)].into_iter().chain((0..8).map(|at| part(80 + 10 * at, 90 + 10 * at))).collect();
        let trend = |changes: [i64; 9]| {
            let mut live = LiveChanges::default();
            for (at, change) in changes.into_iter().enumerate() {
                live.add(at, 9, PartChange { live: change << 10, alloc: 0 });
            }
            Trend::with_error(&parts, live.as_slice(), 0).unwrap()
        };
        assert_eq!(trend([80, 10, 10, 10, 10, 10, 10, 10, 10]).kind, Kind::SteadyGrowth);
        assert_eq!(trend([80, 10, 10, 10, 10, 10, 10, 10, 10]).second_half, 1);
        assert_eq!(trend([80, 0, 0, 0, 0, 0, 0, 0, 1]).kind, Kind::SingleGrowth);
        assert_eq!(trend([0, 0, 80, 0, 0, 0, 0, 0, 1]).kind, Kind::SingleGrowth);
        assert_eq!(trend([i64::MAX >> 10, i64::MAX >> 10, 0, 0, 0, 0, 0, 0, 0]).kind, Kind::Irregular);
    }

    #[test]
    fn single_growth_has_its_time() {
        let text = "single growth: +90.00 KiB from +4 s to +6 s";
        check(&[0, 1, 90, 0, 0, 1, 0, 0], 2, Kind::SingleGrowth, text);
        // The growth continues into the next part.
        let text = "single growth: +90.00 KiB from +4 s to +8 s";
        check(&[1, 0, 40, 50, 0, 1, 0, 0], 2, Kind::SingleGrowth, text);
        let text = "single growth: +90.00 KiB from +0 s to +2 s";
        check(&[90, 0, 0, 0], 2, Kind::SingleGrowth, text);
        let text = "single growth: +90.00 KiB from +6 s to +8 s";
        check(&[1, 0, 0, 90], 2, Kind::SingleGrowth, text);
    }

    #[test]
    fn churn_has_its_allocations() {
        let text = "churn: 20.00 MiB allocated, -1.00 KiB live from +8 s to +16 s";
        check(&[2048, 3, -2, 0, -1, 1, -1, 0], 5 << 10, Kind::Churn, text);
    }

    #[test]
    fn merged_allocations_are_no_churn() {
        let parts: Vec<_> = (0..8).map(|at| Duration::from_secs(at)..Duration::from_secs(at + 1)).collect();
        let change = |live, alloc: i64| PartChange { live, alloc: alloc.cast_unsigned() };
        let mut live = LiveChanges::default();
        live.add(0, 8, change(10 << 10, 50 << 10));
        live.add(5, 8, change(0, -(40 << 10)));
        assert_eq!(Trend::with_error(&parts, live.as_slice(), 0).unwrap().kind, Kind::SingleGrowth);
    }

    #[test]
    fn other_courses_have_a_name() {
        check(&[0, 0, 0, 0, 0, 0, 10, 9], 9, Kind::Recent, "recent: first changed from +12 s to +14 s");
        let text = "decrease: -512 B/s in 1 of 4 parts from +4 s to +12 s";
        // A rate below 1 KiB per second is given per minute.
        let text = text.replace("-512 B/s", "-30.00 KiB/min");
        check(&[0, 0, -4, 0, 0, 0], 0, Kind::Decrease, &text);
        let text = "irregular: +60.00 KiB in 2 parts, -20.00 KiB in 1, of 6 from +0 s to +12 s";
        check(&[30, 0, -20, 0, 30, 0], 6, Kind::Irregular, text);
        let text = "irregular: +60.00 KiB in 2 parts, of 6 from +0 s to +12 s";
        check(&[30, 0, 0, 0, 30, 0], 6, Kind::Irregular, text);
    }

    #[test]
    fn a_change_within_its_error_is_no_trend() {
        let parts: Vec<_> = (0..8).map(|at| Duration::from_secs(at)..Duration::from_secs(at + 1)).collect();
        let trend = |changes: [i64; 8], error: u64| {
            let mut live = LiveChanges::default();
            for (at, change) in changes.into_iter().enumerate() {
                live.add(at, 8, PartChange { live: change << 10, alloc: 0 });
            }
            Trend::with_error(&parts, live.as_slice(), error << 10).unwrap()
        };
        assert_eq!(trend([10; 8], 79).kind, Kind::SteadyGrowth);
        let within = trend([10; 8], 80);
        let text = "within the error: +80.00 KiB ± 80.00 KiB from +0 s to +8 s";
        assert_eq!((within.kind, within.text().as_str()), (Kind::WithinError, text));
        assert_eq!(trend([90, 0, 0, 0, 0, 0, 0, 1], 200).kind, Kind::WithinError);
        let text = "within the error: -20.00 KiB ± 30.00 KiB from +0 s to +8 s";
        assert_eq!(trend([-10, 0, 0, -10, 0, 0, 0, 0], 30).text(), text);
        // The first change is never a claim about growth.
        assert_eq!(trend([0, 0, 0, 0, 0, 0, 10, 9], 200).kind, Kind::Recent);
        assert_eq!(trend([30, 0, -20, 0, 30, 0, 0, 0], 200).kind, Kind::Irregular);
    }

    #[test]
    fn sampled_growth_has_the_error_of_the_live_bytes() {
        // Of blocks of 64 bytes, one in eight is sampled: a sample has the variance 512² · 7/8 = 229,376 and the unit
        // 448. For 4 samples, half of the width is 1.96·√(4·229,376 + 448²·0.9604) = 2065.23. For 8 samples, it is
        // 2791.03.
        let usage = |samples: u64| {
            let live = Amount { bytes: Bytes(512 * samples), count: 8 * samples };
            let mut usage = Quantities::of_blocks([live, live, Amount::default()])
                .with(Quantity::HeldSamples, samples)
                .with(Quantity::AllocSamples, samples);
            usage.add_variance(Variance::HeldBytes, 229_376 * u128::from(samples));
            usage
        };
        let parts: Vec<_> = (0..8).map(|at| Duration::from_secs(at)..Duration::from_secs(at + 1)).collect();
        let profile = Profile { run: RunFacts { parts, ..RunFacts::default() }, ..Profile::default() };
        let trend = |samples: u64| {
            let mut live = LiveChanges::default();
            let change = PartChange { live: 64 * samples.cast_signed(), alloc: 64 * samples };
            (0..8).for_each(|at| live.add(at, 8, change));
            Trend::of(&profile, &live, &usage(samples)).unwrap()
        };
        assert_eq!(trend(4).text(), "within the error: +2.00 KiB ± 2.02 KiB from +0 s to +8 s");
        assert_eq!(trend(8).kind, Kind::SteadyGrowth);
    }

    #[test]
    fn growth_in_the_first_part_counts_in_mixed_traces() {
        let mut live = LiveChanges::default();
        live.add(0, 8, PartChange { live: 1 << 20, alloc: 1 << 20 });
        let block = Amount { bytes: Bytes(1 << 20), count: 1 };
        let usage = Quantities::of_blocks([block, block, Amount::default()]);
        let sampled = usage.with(Quantity::HeldSamples, 50).with(Quantity::AllocSamples, 50);
        let parts = (0..8).map(|at| Duration::from_secs(at)..Duration::from_secs(at + 1)).collect();
        let mut run = RunFacts { parts, ..RunFacts::default() };
        for (pid, source) in [(7, SampleSource::Go), (8, SampleSource::Jemalloc)] {
            run.samplers.add(Pid(pid), Sampler { source, interval: None });
        }
        let profile = Profile { run, ..Profile::default() };
        let kinds = [usage, sampled].map(|usage| Trend::of(&profile, &live, &usage).map(|trend| trend.kind));
        assert_eq!(kinds, [Some(Kind::SingleGrowth); 2]);
    }

    #[test]
    fn nothing_is_known_without_changes() {
        assert_eq!(Trend::with_error(&[], &[], 0), None);
        let mut still = LiveChanges::default();
        still.add(0, 1, PartChange { live: 0, alloc: 8 });
        assert_eq!(Trend::with_error(&[Duration::ZERO..Duration::from_secs(1)], still.as_slice(), 0), None);
    }
}
