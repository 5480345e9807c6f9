//! What the numbers of a class of events are called.

use crate::model::{EventClass, Measure, Metric};

/// Of one class of events.
pub(super) struct Words {
    /// What is there now: `live`.
    pub(super) live: &'static str,
    /// All that there has been: `allocated`.
    pub(super) alloc: &'static str,
    /// What is no more: `freed`.
    pub(super) free: &'static str,
    /// One of what is counted, and several.
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    /// The first three, and how often the second happens in a second, as heads of columns.
    pub(super) heads: [&'static str; 4],
}

const HEAP: Words = Words {
    live: "live",
    alloc: "allocated",
    free: "freed",
    one: "block",
    many: "blocks",
    heads: ["LIVE", "ALLOC", "FREED", "ALLOC/s"],
};

const MAP: Words = Words {
    live: "mapped",
    alloc: "all mapped",
    free: "unmapped",
    one: "page",
    many: "pages",
    heads: ["MAPPED", "IN ALL", "UNMAPPED", "MAP/s"],
};

const FAULT: Words = Words {
    live: "resident",
    alloc: "touched",
    free: "released",
    one: "page",
    many: "pages",
    heads: ["RESIDENT", "TOUCHED", "RELEASED", "TOUCH/s"],
};

const RECLAIM: Words = Words {
    live: "live",
    alloc: "allocated",
    free: "freed",
    one: "wait",
    many: "waits",
    heads: ["LIVE", "ALLOC", "FREED", "WAIT/s"],
};

impl Words {
    /// Those of `class`.
    pub(super) const fn of(class: EventClass) -> &'static Self {
        match class {
            EventClass::Heap => &HEAP,
            EventClass::Map => &MAP,
            EventClass::Fault => &FAULT,
            EventClass::Reclaim => &RECLAIM,
        }
    }

    /// What `metric` shows: `live bytes`.
    pub(super) fn title(&self, metric: Metric) -> String {
        match metric {
            Metric::LiveBytes => format!("{} bytes", self.live),
            Metric::LiveCount => format!("{} {}", self.live, self.many),
            Metric::AllocBytes => format!("{} bytes", self.alloc),
            Metric::AllocCount => format!("{} {}", self.alloc, self.many),
            Metric::PeakBytes => format!("{} bytes at the peak", self.live),
            Metric::StallTime => String::from("time stalled for memory"),
            Metric::StallCount => format!("{} for memory", self.many),
        }
    }

    /// The unit of the metric's values.
    pub(super) const fn unit(&self, metric: Metric) -> &'static str {
        match metric.measure() {
            Measure::Bytes => "bytes",
            Measure::Count => self.many,
            Measure::Time => "ns",
        }
    }
}
