//! Columns for pages: first the kernel's counters, then the pages that stacks touched, with the errors of estimates.

use memtrace_model::format as number;
use memtrace_model::{Amount, Bytes, PageFaults, Profile, Quantities, Quantity};

use super::cells;
use crate::kernel_reported::{self, KernelReported};
use crate::metrics::MetricView;
use crate::table::Column;
use crate::{estimate, format};

/// Numbers of a row: a process, several processes, or a group.
#[derive(Clone, Copy, Default)]
pub(super) struct Memory {
    /// Counters of the kernel; `None` if the kernel does not count for this row.
    pub(super) known: Option<KernelReported>,
    pub(super) usage: Quantities,
}

impl Memory {
    pub(super) fn and(mut self, other: Self) -> Self {
        self.usage += other.usage;
        Self { known: KernelReported::of_both(self.known, other.known), ..self }
    }

    fn faults(&self) -> Option<PageFaults> {
        self.known?.faults
    }
}

/// Returns the columns that have values, in the unit of the metric of `view`.
pub(super) fn columns(rows: &[Memory], view: MetricView<'_>) -> Vec<Column> {
    let profile = view.profile();
    let dash = || String::from("-");
    let [_, alloc, free, _] = profile.run.class.words().heads;
    let live = format::live_head(profile);
    let mut columns = Vec::new();
    if rows.iter().any(|row| row.known.is_some_and(|known| known.resident.is_some())) {
        let resident = |row: &Memory| row.known.and_then(|known| known.resident);
        let cell = |row| resident(row).map_or_else(dash, Bytes::compact);
        columns.push(Column::numbers("RSS", rows.iter().map(cell)).with_importance(8));
    }
    if rows.iter().any(|row| row.faults().is_some()) {
        let number = |head, of: fn(&PageFaults) -> u64| {
            let cell = |row: &Memory| row.faults().map_or_else(dash, |faults| number::compact(of(&faults)));
            Column::numbers(head, rows.iter().map(cell))
        };
        let major = number("MAJOR", |faults| faults.major);
        columns.extend([number("FAULTS", PageFaults::total).with_importance(7), major.with_importance(6)]);
    }
    let estimated = |head, of: fn(&Quantities) -> Amount, error: fn(&Profile, &Memory) -> Option<u64>| {
        let cell = |row: &Memory| {
            cells::amount(view.measure(), of(&row.usage)) + &cells::error(view.measure(), error(profile, row))
        };
        Column::numbers(head, rows.iter().map(cell))
    };
    columns.push(estimated(live, Quantities::live, |profile, row| {
        kernel_reported::live_error(row.known, profile, &row.usage)
    }));
    columns.push(estimated(alloc, Quantities::alloc, |profile, row| {
        estimate::error(profile, Quantity::AllocCount, &row.usage)
    }));
    // If columns have errors, there is no room for the released amount. It is the difference of the other two
    // amounts.
    if profile.run.page_sample < 2 {
        columns.push(estimated(free, Quantities::free, |_, _| None).with_importance(5));
    }
    columns
}
