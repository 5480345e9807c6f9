//! What the table of processes shows of their pages: first what the kernel counts itself, then what stacks have touched, with
//! its error where that is estimated.

use super::super::words::Words;
use super::super::{estimate, phrase};
use super::counts;
use super::table::{self, Column};
use crate::model::{Amount, Bytes, Metric, PageFaults, ProcessProfile, Profile, Usage, Variance};

/// Of a process, or of several.
#[derive(Clone, Copy, Default)]
pub(super) struct Memory {
    /// All that is resident; `None` where nothing is known of it, as of those that have ended.
    resident: Option<Bytes>,
    faults: Option<PageFaults>,
    usage: Usage,
    variance: Variance,
    /// More its stacks cannot have resident, where that is known.
    most: Option<Bytes>,
}

impl Memory {
    pub(super) fn of(process: &ProcessProfile, variance: Variance) -> Self {
        Self {
            resident: process.resident.as_ref().map(|residence| residence.sum().total),
            faults: process.faults,
            usage: process.total,
            variance,
            most: estimate::most_of(process),
        }
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        self.usage += other.usage;
        self.variance += other.variance;
        let resident = [self.resident, other.resident].into_iter().flatten();
        Self {
            resident: resident.reduce(|sum, bytes| Bytes(sum.0.saturating_add(bytes.0))),
            faults: counts::sum([self.faults, other.faults].into_iter()),
            usage: self.usage,
            variance: self.variance,
            most: self.most.zip(other.most).map(|(one, other)| Bytes(one.0.saturating_add(other.0))),
        }
    }
}

impl Memory {
    /// In pages.
    fn live_error(profile: &Profile, row: &Self) -> Option<u64> {
        let error = estimate::error(profile, Metric::LiveCount, &row.usage, row.variance)?;
        Some(row.most.map_or(error, |most| estimate::within(error, row.usage.live.bytes, most)))
    }

    /// In pages.
    fn alloc_error(profile: &Profile, row: &Self) -> Option<u64> {
        estimate::error(profile, Metric::AllocCount, &row.usage, row.variance)
    }
}

/// The columns, in the unit of `metric`.
pub(super) fn columns(rows: &[Memory], profile: &Profile, metric: Metric) -> Vec<Column> {
    let dash = || String::from("-");
    let number = |of: fn(&PageFaults) -> u64| {
        let cell = move |row: &Memory| row.faults.as_ref().map_or_else(dash, |faults| phrase::compact(of(faults)));
        rows.iter().map(cell).collect::<Vec<_>>()
    };
    let [live, alloc, free, _] = Words::of(profile.class).heads;
    let estimated = |head, of: fn(&Usage) -> Amount, error: fn(&Profile, &Memory) -> Option<u64>| {
        let cell = |row: &Memory| table::amount(metric, of(&row.usage)) + &table::error(metric, error(profile, row));
        Column::numbers(head, rows.iter().map(cell))
    };
    let mut columns = vec![
        Column::numbers("RSS", rows.iter().map(|row| row.resident.map_or_else(dash, phrase::compact_bytes))),
        Column::numbers("FAULTS", number(PageFaults::total)),
        Column::numbers("MAJOR", number(|faults| faults.major)),
        estimated(live, |usage| usage.live, Memory::live_error),
        estimated(alloc, |usage| usage.alloc, Memory::alloc_error),
    ];
    // Beside errors there is no room for what is only the difference of the two before.
    if profile.page_sample < 2 {
        columns.push(Column::numbers(free, rows.iter().map(|row| table::amount(metric, row.usage.free))));
    }
    columns
}
