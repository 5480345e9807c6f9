//! One of the two reports of a comparison.

use std::cmp::Ordering;

use memtrace_model::format as number;
use memtrace_model::{Bytes, EventClass, ImageEnd, Profile, Quantity, StackEnd, plain};

use crate::estimate::{self, Samples, Uncertainty};
use crate::metrics::MetricView;

/// One of the two reports of a comparison.
#[derive(Clone, Debug)]
pub struct Side {
    /// Name of the report: its file, and the moment if the file is a recording.
    pub name: String,
    /// Traced target: `pid 4711 (redis-server)`.
    pub subject: String,
    pub(super) profile: Profile,
    /// True if blocks that are live in the report count as held at exit.
    pub(super) is_held: bool,
}

impl Side {
    /// Returns a report for a comparison, without details that differ between runs: addresses outside of objects, and
    /// the numbers of merged stacks.
    #[must_use]
    pub fn new(name: String, subject: String, mut profile: Profile) -> Self {
        for stack in profile.stacks.iter_mut().filter(|stack| stack.merged() > 0) {
            stack.usage[Quantity::MergedStacks] = 0;
            stack.frames = [].into();
            stack.end = StackEnd::Merged;
        }
        for frame in profile.frames.iter_mut().filter(|frame| frame.object.is_none()) {
            frame.address = None;
            frame.offset = None;
        }
        Self { name, subject, profile, is_held: false }
    }

    /// Counts live blocks as held at exit, as if the processes had ended at the end of the report. So a report of running
    /// processes can be compared with a report of their end.
    #[must_use]
    pub fn held(mut self) -> Self {
        for stack in &mut self.profile.stacks {
            self.is_held |= stack.usage.live().bytes.0 > 0;
            stack.usage.end(ImageEnd::Exit, EventClass::Heap);
        }
        self
    }

    /// Returns the sum of the metric of `view` over all stacks.
    pub(super) fn value(&self, view: MetricView<'_>) -> u64 {
        self.profile.stacks.iter().map(|stack| view.value(&stack.usage)).fold(0, u64::saturating_add)
    }

    /// Returns the samples of the metric of `view` in all stacks.
    pub(super) fn samples(&self, view: MetricView<'_>) -> Samples {
        self.profile.stacks.iter().fold(Samples::default(), |mut sum, stack| {
            sum += view.samples(&stack.usage);
            sum
        })
    }

    /// Returns the error of the value as a text that follows the value; empty if the value is exact.
    pub(super) fn error_text(&self, view: MetricView<'_>) -> String {
        let uncertainty = self.samples(view).uncertainty();
        uncertainty.map_or_else(String::new, |uncertainty| uncertainty.suffix(view.measure(), self.value(view)))
    }

    /// Returns the target and the duration: `pid 4711 (redis-server), 30 s`.
    pub(super) fn described(&self) -> String {
        format!("{}, {}", plain(&self.subject), number::duration(self.profile.run.duration))
    }
}

/// Returns the uncertainty of the change of the total.
pub(super) fn uncertainty_of_total(sides: [&Side; 2], view: MetricView<'_>) -> Option<Uncertainty> {
    let interval = |side: usize| estimate::interval_of(&sides[side].profile, |_| true);
    uncertainty_of_change(interval, view, sides.map(|side| side.samples(view)), sides.map(|side| side.value(view)))
}

/// Returns the uncertainty of a change between two reports; `None` if both values are exact. `samples` and `values`: samples
/// and value in each report. A value of 0 without samples is an estimate too, if `interval` returns the interval of the samplers
/// in a report.
pub(super) fn uncertainty_of_change(
    interval: impl Fn(usize) -> Option<Bytes>,
    view: MetricView<'_>,
    samples: [Samples; 2],
    values: [u64; 2],
) -> Option<Uncertainty> {
    let own = samples.map(Samples::uncertainty);
    let [before, after] = [0, 1].map(|side| {
        let is_none = values[side] == 0;
        let without = || is_none.then(|| Samples::without(interval(side), view.measure())).flatten();
        own[side].or_else(without).unwrap_or(Uncertainty::EXACT)
    });
    (own != [None; 2]).then(|| after.minus(before))
}

/// Returns true if the interval of the change from `before` to `after` contains 0.
pub(super) fn is_within(uncertainty: Option<Uncertainty>, before: u64, after: u64) -> bool {
    let margin = uncertainty.map(Uncertainty::margin).unwrap_or_default();
    after.saturating_sub(before) <= margin.below && before.saturating_sub(after) <= margin.above
}

/// Returns the error of a change as a text that follows the change; empty if both values are exact.
pub(super) fn error_of_change(
    uncertainty: Option<Uncertainty>,
    view: MetricView<'_>,
    before: u64,
    after: u64,
) -> String {
    let change = i128::from(after) - i128::from(before);
    uncertainty.map_or_else(String::new, |uncertainty| uncertainty.change_suffix(view.measure(), change))
}

/// Returns the change from `before` to `after` with its sign: `+1.50 MiB`, `-3 blocks`, `±0 B`.
pub(super) fn signed(view: MetricView<'_>, before: u64, after: u64) -> String {
    let sign = match before.cmp(&after) {
        Ordering::Less => '+',
        Ordering::Equal => '±',
        Ordering::Greater => '-',
    };
    format!("{sign}{}", view.text(before.abs_diff(after)))
}
