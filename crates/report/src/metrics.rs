//! Values and titles of the metric of a report, and of all measured metrics for formats that show several.

use memtrace_model::format::duration;
use memtrace_model::{Bytes, Measure, Metric, Nanoseconds, ProcessProfile, Profile, Quantities, Requirement};
use memtrace_model::{EventClass, Quantity, TouchWindow};

use crate::estimate::{SampledPart, Samples, Uncertainty};
use crate::{estimate, format};

/// A profile and one of its metrics.
#[derive(Clone, Copy)]
pub(super) struct MetricView<'a> {
    profile: &'a Profile,
    metric: Metric,
}

impl<'a> MetricView<'a> {
    pub(super) const fn new(profile: &'a Profile, metric: Metric) -> Self {
        Self { profile, metric }
    }

    /// Returns a view for each metric that was measured, ordered as in the help. In a window of a recording, live
    /// amounts are changes and can be negative.
    pub(super) fn measured(profile: &'a Profile) -> Vec<Self> {
        let views = Metric::ALL.into_iter().filter(|metric| metric.is_of(profile.run.class));
        views.map(|metric| Self { profile, metric }).filter(Self::is_measured).collect()
    }

    /// Returns a view for each metric that was measured. In a window of a recording, growth replaces the live amounts.
    pub(super) fn measured_growth(self) -> Vec<Self> {
        let mut views = Self::measured(self.profile);
        if self.profile.run.window.is_some() && Quantity::LiveBytes.is_of(self.class()) {
            views.retain(|view| !view.is_of_live());
            let metric = if self.is_of_marks() { self.metric } else { Metric::NetGrowth };
            views.insert(0, Self { metric, ..self });
        }
        views
    }

    fn is_measured(&self) -> bool {
        match self.metric.quantity() {
            Quantity::LiveBytes | Quantity::LiveCount => format::shows_live(self.profile),
            Quantity::ExitBytes | Quantity::ExitCount => format::shows_exit(self.profile),
            _ => match self.metric.requirement() {
                Requirement::Peaks => self.profile.processes.iter().any(|process| process.peak.is_some()),
                Requirement::Touches => self.profile.run.touches.is_some(),
                Requirement::Events | Requirement::Moments | Requirement::Marks => true,
            },
        }
    }

    pub(super) const fn profile(&self) -> &'a Profile {
        self.profile
    }

    pub(super) const fn class(&self) -> EventClass {
        self.profile.run.class
    }

    /// Returns the name on the command line and in reports.
    pub(super) const fn name(&self) -> &'static str {
        self.metric.name()
    }

    /// Returns the sample type in profiles for pprof.
    pub(super) const fn sample_type(&self) -> &'static str {
        self.metric.facts().sample_type
    }

    /// Returns the quantity that the metric shows.
    pub(super) const fn quantity(&self) -> Quantity {
        self.metric.quantity()
    }

    /// Returns the dimension of the values: bytes, a count, or a time.
    pub(super) const fn measure(&self) -> Measure {
        self.metric.measure()
    }

    /// Returns true if values are live amounts.
    pub(super) const fn is_of_live(&self) -> bool {
        matches!(self.quantity(), Quantity::LiveBytes | Quantity::LiveCount)
    }

    /// Returns true if values are changes of live amounts.
    pub(super) fn is_net_growth(&self) -> bool {
        self.metric.needs(Requirement::Moments)
    }

    /// Returns true if only blocks that were allocated between two marks count.
    pub(super) fn is_of_marks(&self) -> bool {
        self.metric.needs(Requirement::Marks)
    }

    /// Returns true if values are live amounts at the peak of each process.
    pub(super) fn is_of_peaks(&self) -> bool {
        self.metric.needs(Requirement::Peaks)
    }

    /// Returns true if values are parts of live amounts on touched or untouched pages.
    pub(super) fn is_of_touches(&self) -> bool {
        self.metric.needs(Requirement::Touches)
    }

    /// Returns true if both views show the same quantity. Growth and live bytes have the same quantity.
    pub(super) fn has_values_of(&self, other: &Self) -> bool {
        self.quantity() == other.quantity()
    }

    /// Returns the value of a stack or of a sum.
    pub(super) fn value(&self, usage: &Quantities) -> u64 {
        self.metric.value(usage)
    }

    /// Returns the value of a process. Peaks are kept for each process, not in the sum of its stacks.
    pub(super) fn process_value(&self, process: &ProcessProfile) -> u64 {
        if self.is_of_peaks() { process.peak.map_or(0, |peak| peak.0) } else { self.value(&process.total) }
    }

    /// Returns the value of a stack. In a window of a recording, the value is negative for a decrease. It is also
    /// negative for a sum of merged stacks, if separate stacks replace the sum within the window.
    pub(super) fn signed_value(&self, usage: &Quantities) -> i64 {
        self.value(usage).cast_signed()
    }

    /// Returns the value of a stack, or 0 if it is negative.
    pub(super) fn increase(&self, usage: &Quantities) -> u64 {
        self.signed_value(usage).max(0).cast_unsigned()
    }

    /// Returns the error of the value in its unit; `None` under the conditions of [`estimate::error`].
    pub(super) fn error(&self, usage: &Quantities) -> Option<u64> {
        estimate::error(self.profile, self.quantity(), usage)
    }

    /// Returns the uncertainty of the value of a sum; `None` if the value is exact. `sampled`: the sampled part of the sum.
    pub(super) fn uncertainty(&self, sampled: &SampledPart) -> Option<Uncertainty> {
        sampled.uncertainty(self.profile, self.varying_quantity())
    }

    /// Returns the samples of the value of a stack; no samples if the value is exact.
    pub(super) fn samples(&self, usage: &Quantities) -> Samples {
        SampledPart::of_stack(usage).samples(self.profile, self.varying_quantity()).unwrap_or_default()
    }

    /// Returns the quantity with the variance of the values. Live blocks from between two marks have the variance of all
    /// blocks that were allocated between the marks.
    const fn varying_quantity(&self) -> Quantity {
        match self.metric {
            Metric::Growth => Quantity::AllocBytes,
            _ => self.quantity(),
        }
    }

    /// Returns the error of the value of a sum as a text that follows the value. Returns an empty text if the value is exact.
    /// `sampled`: the sampled part of the sum.
    pub(super) fn error_text(&self, usage: &Quantities, sampled: &SampledPart) -> String {
        match self.uncertainty(sampled) {
            Some(uncertainty) => uncertainty.suffix(self.measure(), self.value(usage)),
            None => estimate::format_error(self.error(usage), self.measure()),
        }
    }

    /// Returns a value with its unit.
    pub(super) fn text(&self, value: u64) -> String {
        self.text_of(self.measure(), value)
    }

    /// Returns the other number of the same blocks or stalls, with its unit: the count for bytes or a time, and the
    /// bytes or the time for a count. `None` if the quantity has no pair. If the number is an estimate, its error
    /// follows. `sampled`: the sampled part of the sum.
    pub(super) fn text_of_pair(&self, usage: &Quantities, sampled: &SampledPart) -> Option<String> {
        let pair = self.quantity().facts().pair?;
        let (measure, value) = (pair.facts().measure, usage[pair]);
        let uncertainty = sampled.uncertainty(self.profile, pair);
        Some(match measure {
            Measure::Count => format::estimated_blocks(self.class(), value, uncertainty),
            Measure::Bytes | Measure::Time => {
                let error = uncertainty.map(|uncertainty| uncertainty.suffix(measure, value));
                self.text_of(measure, value) + &error.unwrap_or_default()
            }
        })
    }

    fn text_of(&self, measure: Measure, value: u64) -> String {
        match measure {
            Measure::Bytes => Bytes(value).to_string(),
            Measure::Count => format::blocks(self.class(), value),
            Measure::Time => Nanoseconds(value).to_string(),
        }
    }

    /// Returns the name of the unit of the values.
    pub(super) const fn unit(&self) -> &'static str {
        match self.measure() {
            Measure::Bytes => "bytes",
            Measure::Count => self.class().words().many,
            Measure::Time => "ns",
        }
    }

    /// Returns the title: `live bytes`, or `live bytes at least 30 s old` if the profile is filtered by age.
    pub(super) fn title(&self) -> String {
        let title = self.metric.title(self.class());
        match (self.profile.run.older, self.profile.run.touches) {
            (Some(age), _) if self.quantity().is_held() && self.metric.needs(Requirement::Events) => {
                format!("{title} at least {} old", duration(age))
            }
            (_, Some(TouchWindow { method, duration: time })) if self.is_of_touches() => {
                let not = if self.quantity() == Quantity::ColdBytes { "not " } else { "" };
                format!("{} bytes {not}{} within {}", self.class().words().live, method.verb(), duration(time))
            }
            _ => title,
        }
    }

    /// Returns the reason for an empty report: `no live bytes`.
    pub(super) fn empty_reason(&self) -> String {
        if self.is_of_peaks() && self.profile.processes.iter().all(|process| process.peak.is_none()) {
            String::from("no peak was kept")
        } else {
            format!("no {}", self.title())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::{ImageEnd, Pid};

    use super::*;

    #[test]
    fn metrics_that_were_not_measured_are_left_out() {
        let names = |profile: &Profile, metric| {
            let views = MetricView { profile, metric }.measured_growth();
            views.iter().map(MetricView::name).collect::<Vec<_>>()
        };
        let mut profile = Profile { processes: vec![ProcessProfile::new(Pid(1), "a")], ..Profile::default() };
        let live = Metric::LiveBytes;
        assert_eq!(names(&profile, live), ["live-bytes", "live-count", "alloc-bytes", "alloc-count", "temporary"]);
        profile.processes[0].ended = Some(ImageEnd::Exit);
        assert_eq!(names(&profile, live), ["exit-bytes", "exit-count", "alloc-bytes", "alloc-count", "temporary"]);
        profile.run.window = Some(Duration::ZERO..Duration::from_secs(1));
        assert_eq!(names(&profile, live), ["net-growth", "alloc-bytes", "alloc-count", "temporary"]);
        assert_eq!(names(&profile, Metric::Growth), ["growth", "alloc-bytes", "alloc-count", "temporary"]);
        profile.run.class = EventClass::Reclaim;
        assert_eq!(names(&profile, live), ["stall-time", "stall-count"]);
        let is_measured = |metric| MetricView::measured(&profile).iter().any(|view| view.metric == metric);
        assert!(!is_measured(Metric::PeakBytes) && !is_measured(Metric::ColdBytes));
    }
}
