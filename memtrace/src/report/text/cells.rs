//! Cells of tables: amounts, their errors, and stalls.

use crate::model::format as number;
use crate::model::{Amount, Bytes, Measure, Metric, StallTotals};
use crate::report::estimate;
use crate::report::table::Column;

/// An amount as a table of `metric` shows it.
pub(super) fn amount(metric: Metric, amount: Amount) -> String {
    match metric.measure() {
        Measure::Bytes => Bytes::compact(amount.bytes),
        Measure::Count | Measure::Time => number::compact(amount.count),
    }
}

/// ` ±1.31M`, as a table of `metric` shows an error of so many pages; nothing where the numbers are counted, or certain.
pub(super) fn error(metric: Metric, pages: Option<u64>) -> String {
    let shown = |pages| amount(metric, Amount { bytes: estimate::bytes(pages), count: pages });
    pages.filter(|pages| *pages > 0).map_or_else(String::new, |pages| format!(" ±{}", shown(pages)))
}

/// The columns of waits: how long, and how often.
pub(super) fn stalls(cells: impl Iterator<Item = StallTotals> + Clone) -> [Column; 2] {
    [
        Column::numbers("STALLED", cells.clone().map(|stalls| stalls.time.to_string())),
        Column::numbers("TIMES", cells.map(|stalls| number::compact(stalls.count))),
    ]
}
