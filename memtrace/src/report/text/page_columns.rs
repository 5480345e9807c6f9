//! What tables show of processes' pages: first what the kernel says itself, then what stacks have touched, with its error where
//! that is estimated.

use super::cells;
use crate::model::format as number;
use crate::model::{Amount, Bytes, Metric, PageFaults, Profile, Usage, Variance};
use crate::report::estimate;
use crate::report::kernel_reported::{self, Known};
use crate::report::table::Column;

/// A row: a process, or several, or what else stacks are put together under.
#[derive(Clone, Copy, Default)]
pub(super) struct Memory {
    /// What the kernel says, where it says it of this.
    pub(super) known: Option<Known>,
    pub(super) usage: Usage,
    pub(super) variance: Variance,
}

impl Memory {
    pub(super) fn and(mut self, other: Self) -> Self {
        self.usage += other.usage;
        self.variance += other.variance;
        Self { known: Known::of_both(self.known, other.known), ..self }
    }

    fn faults(&self) -> Option<PageFaults> {
        self.known?.faults
    }
}

/// The columns, in the unit of `metric`, without those of which nothing is known.
pub(super) fn columns(rows: &[Memory], profile: &Profile, metric: Metric) -> Vec<Column> {
    let dash = || String::from("-");
    let [live, alloc, free, _] = profile.class.words().heads;
    let mut columns = Vec::new();
    if rows.iter().any(|row| row.known.is_some_and(|known| known.resident.is_some())) {
        let resident = |row: &Memory| row.known.and_then(|known| known.resident);
        let cell = |row| resident(row).map_or_else(dash, Bytes::compact);
        columns.push(Column::numbers("RSS", rows.iter().map(cell)));
    }
    if rows.iter().any(|row| row.faults().is_some()) {
        let number = |head, of: fn(&PageFaults) -> u64| {
            let cell = |row: &Memory| row.faults().map_or_else(dash, |faults| number::compact(of(&faults)));
            Column::numbers(head, rows.iter().map(cell))
        };
        columns.extend([number("FAULTS", PageFaults::total), number("MAJOR", |faults| faults.major)]);
    }
    let estimated = |head, of: fn(&Usage) -> Amount, error: fn(&Profile, &Memory) -> Option<u64>| {
        let cell = |row: &Memory| cells::amount(metric, of(&row.usage)) + &cells::error(metric, error(profile, row));
        Column::numbers(head, rows.iter().map(cell))
    };
    columns.push(estimated(
        live,
        |usage| usage.live,
        |profile, row| kernel_reported::live_error(row.known, profile, &row.usage, row.variance),
    ));
    columns.push(estimated(
        alloc,
        |usage| usage.alloc,
        |profile, row| estimate::error(profile, Metric::AllocCount, &row.usage, row.variance),
    ));
    // Beside errors there is no room for what is only the difference of the two before.
    if profile.page_sample < 2 {
        columns.push(estimated(free, |usage| usage.free, |_, _| None));
    }
    columns
}
