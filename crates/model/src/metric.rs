//! Metrics: the values that reports draw and rank.

use super::{ClassWords, EventClass, Measure, Quantities, Quantity};

/// Metric of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Bytes allocated and not freed, by processes that run.
    #[default]
    LiveBytes,
    /// Blocks allocated and not freed, by processes that run.
    LiveCount,
    /// Bytes that processes held when they ended.
    ExitBytes,
    /// Blocks that processes held when they ended.
    ExitCount,
    /// Bytes allocated, freed or not.
    AllocBytes,
    /// Blocks allocated, freed or not.
    AllocCount,
    /// Blocks freed by the allocating thread before its next allocation.
    Temporary,
    /// Live bytes at the moment when the live bytes of the process were highest.
    PeakBytes,
    /// Live bytes on pages that were touched within the time of `--cold-after`.
    HotBytes,
    /// Live bytes on resident pages that were not touched within the time of `--cold-after`.
    ColdBytes,
    /// Total time of stalls.
    StallTime,
    /// Number of stalls.
    StallCount,
    /// Growth of the live bytes between two moments of a recording.
    NetGrowth,
    /// Live bytes that were allocated between two marks of a recording.
    Growth,
}

/// Data that a metric needs. Without the data, the values of the metric are 0, or equal to the values of another metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The events of the class.
    Events,
    /// The peaks of the live bytes, which the run records on request only.
    Peaks,
    /// A measurement of touched pages.
    Touches,
    /// Two moments of a recording.
    Moments,
    /// Two marks of a recording.
    Marks,
}

/// Facts about a metric.
#[derive(Debug)]
pub struct MetricFacts {
    /// The metric.
    pub metric: Metric,
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// Description in the help.
    pub help: &'static str,
    /// Function that makes the title from the words of an event class: `live bytes`.
    pub title: fn(&ClassWords) -> String,
    /// Quantity with the values of the metric.
    pub quantity: Quantity,
    /// Data that the metric needs.
    pub requirement: Requirement,
    /// Name of the sample type in pprof profiles.
    pub sample_type: &'static str,
}

/// The facts of every metric, ordered as in the help.
const METRICS: &[MetricFacts] = &[
    MetricFacts {
        metric: Metric::LiveBytes,
        name: "live-bytes",
        help: "bytes allocated and not freed by running processes; for page faults, resident bytes",
        title: |words| format!("{} bytes", words.live),
        quantity: Quantity::LiveBytes,
        requirement: Requirement::Events,
        sample_type: "inuse_space",
    },
    MetricFacts {
        metric: Metric::LiveCount,
        name: "live-count",
        help: "blocks allocated and not freed by running processes; for page faults, resident pages",
        title: |words| format!("{} {}", words.live, words.many),
        quantity: Quantity::LiveCount,
        requirement: Requirement::Events,
        sample_type: "inuse_objects",
    },
    MetricFacts {
        metric: Metric::ExitBytes,
        name: "exit-bytes",
        help: "bytes that processes had not freed when they ended",
        title: |_| String::from("bytes held at exit"),
        quantity: Quantity::ExitBytes,
        requirement: Requirement::Events,
        sample_type: "exit_space",
    },
    MetricFacts {
        metric: Metric::ExitCount,
        name: "exit-count",
        help: "blocks that processes had not freed when they ended",
        title: |words| format!("{} held at exit", words.many),
        quantity: Quantity::ExitCount,
        requirement: Requirement::Events,
        sample_type: "exit_objects",
    },
    MetricFacts {
        metric: Metric::AllocBytes,
        name: "alloc-bytes",
        help: "bytes allocated, freed or not; for page faults, all bytes touched",
        title: |words| format!("{} bytes", words.alloc),
        quantity: Quantity::AllocBytes,
        requirement: Requirement::Events,
        sample_type: "alloc_space",
    },
    MetricFacts {
        metric: Metric::AllocCount,
        name: "alloc-count",
        help: "blocks allocated, freed or not; for page faults, all pages touched",
        title: |words| format!("{} {}", words.alloc, words.many),
        quantity: Quantity::AllocCount,
        requirement: Requirement::Events,
        sample_type: "alloc_objects",
    },
    MetricFacts {
        metric: Metric::Temporary,
        name: "temporary",
        help: "blocks freed by the allocating thread before its next allocation",
        title: |words| format!("temporary {}", words.many),
        quantity: Quantity::TemporaryCount,
        requirement: Requirement::Events,
        sample_type: "temporary_objects",
    },
    MetricFacts {
        metric: Metric::PeakBytes,
        name: "peak-bytes",
        help: "live bytes at the process's high-water mark",
        title: |words| format!("{} bytes at the peak", words.live),
        quantity: Quantity::AtPeakBytes,
        requirement: Requirement::Peaks,
        sample_type: "peak_space",
    },
    MetricFacts {
        metric: Metric::HotBytes,
        name: "hot-bytes",
        help: "live bytes on pages that were touched within --cold-after",
        title: |words| format!("{} bytes that were touched", words.live),
        quantity: Quantity::HotBytes,
        requirement: Requirement::Touches,
        sample_type: "hot_space",
    },
    MetricFacts {
        metric: Metric::ColdBytes,
        name: "cold-bytes",
        help: "live bytes on pages that were not touched within --cold-after",
        title: |words| format!("{} bytes that were not touched", words.live),
        quantity: Quantity::ColdBytes,
        requirement: Requirement::Touches,
        sample_type: "cold_space",
    },
    MetricFacts {
        metric: Metric::StallTime,
        name: "stall-time",
        help: "nanoseconds stalled on memory, for reclaim",
        title: |_| String::from("time stalled for memory"),
        quantity: Quantity::StallTime,
        requirement: Requirement::Events,
        sample_type: "stall_time",
    },
    MetricFacts {
        metric: Metric::StallCount,
        name: "stall-count",
        help: "number of stalls on memory, for reclaim",
        title: |words| format!("{} for memory", words.many),
        quantity: Quantity::StallCount,
        requirement: Requirement::Events,
        sample_type: "stall_count",
    },
    MetricFacts {
        metric: Metric::NetGrowth,
        name: "net-growth",
        help: "growth of the live bytes between two moments of a recording, for report",
        title: |words| format!("net growth of {} bytes", words.live),
        quantity: Quantity::LiveBytes,
        requirement: Requirement::Moments,
        sample_type: "net_growth",
    },
    MetricFacts {
        metric: Metric::Growth,
        name: "growth",
        help: "live bytes allocated between two marks of a recording, for report --between",
        title: |words| format!("{} bytes allocated between the marks", words.live),
        quantity: Quantity::LiveBytes,
        requirement: Requirement::Marks,
        sample_type: "growth",
    },
];

const _: () = {
    let mut index = 0;
    while index < METRICS.len() {
        assert!(METRICS[index].metric as usize == index);
        index += 1;
    }
};

impl Requirement {
    /// Returns true if a metric with this quantity has the requirement.
    #[must_use]
    pub fn is_of(self, quantity: Quantity) -> bool {
        Metric::ALL.into_iter().any(|metric| metric.quantity() == quantity && metric.needs(self))
    }
}

impl Metric {
    /// Every metric, ordered as in the help.
    pub const ALL: [Self; METRICS.len()] = {
        let mut all = [Self::LiveBytes; METRICS.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = METRICS[index].metric;
            index += 1;
        }
        all
    };

    /// Returns the metrics of stacks of `class`. The first one is the default while processes run.
    pub fn all_of(class: EventClass) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |metric| metric.is_of(class))
    }

    /// Returns the default metric of `class`. If all processes have ended, nothing is live, so the default is not a live
    /// metric.
    #[must_use]
    pub(crate) fn default_of(class: EventClass, has_ended: bool) -> Self {
        let is_live = |metric: Self| matches!(metric.quantity(), Quantity::LiveBytes | Quantity::LiveCount);
        Self::all_of(class).find(|metric| !(has_ended && is_live(*metric))).unwrap_or_default()
    }

    /// Returns the metric with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Returns the row of this metric.
    #[must_use]
    pub const fn facts(self) -> &'static MetricFacts {
        &METRICS[self as usize]
    }

    /// Returns the name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the quantity with the values of the metric.
    #[must_use]
    pub const fn quantity(self) -> Quantity {
        self.facts().quantity
    }

    /// Returns the dimension of the values.
    #[must_use]
    pub const fn measure(self) -> Measure {
        self.quantity().facts().measure
    }

    /// Returns the requirement of the metric.
    #[must_use]
    pub const fn requirement(self) -> Requirement {
        self.facts().requirement
    }

    /// Returns true if the metric has this requirement.
    #[must_use]
    pub fn needs(self, requirement: Requirement) -> bool {
        self.facts().requirement == requirement
    }

    /// Returns true if stacks of `class` have the metric. The two growth metrics are not included: they are views of
    /// recordings.
    #[must_use]
    pub fn is_of(self, class: EventClass) -> bool {
        !matches!(self.requirement(), Requirement::Moments | Requirement::Marks) && self.quantity().is_of(class)
    }

    /// Returns the title: `live bytes`.
    #[must_use]
    pub fn title(self, class: EventClass) -> String {
        (self.facts().title)(class.words())
    }

    /// Returns the value for the quantities of a stack or of a sum. For a decrease, [`Metric::NetGrowth`] is 0. For
    /// [`Metric::Growth`], `usage` must count only blocks that were allocated between the marks.
    #[must_use]
    pub fn value(self, usage: &Quantities) -> u64 {
        let value = usage[self.quantity()];
        if self == Self::NetGrowth && value.cast_signed() < 0 { 0 } else { value }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = Metric::ALL.into_iter().map(Metric::name).collect();
        assert_eq!(names.len(), METRICS.len());
        assert!(Metric::ALL.into_iter().all(|metric| Metric::from_name(metric.name()) == Some(metric)));
    }

    #[test]
    fn default_metric_is_that_of_memory_that_is_held() {
        let defaults = |has_ended| EventClass::ALL.iter().map(move |&class| Metric::default_of(class, has_ended));
        let expected = [Metric::LiveBytes, Metric::LiveBytes, Metric::LiveBytes, Metric::StallTime];
        assert!(defaults(false).eq(expected));
        let expected = [Metric::ExitBytes, Metric::AllocBytes, Metric::AllocBytes, Metric::StallTime];
        assert!(defaults(true).eq(expected));
    }
}
