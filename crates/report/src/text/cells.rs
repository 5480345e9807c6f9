//! Cells of tables: amounts, their errors, and stalls.

use memtrace_model::format as number;
use memtrace_model::{Amount, Bytes, Measure, Profile, Quantities, Quantity, StallTotals};

use crate::estimate::SampledPart;
use crate::metrics::MetricView;
use crate::table::Column;
use crate::{estimate, format};

/// Returns the cell for an amount: its bytes or its number of blocks, by `measure`. In a window of a recording, the
/// amount is a change and can be negative.
pub(super) fn amount(measure: Measure, amount: Amount) -> String {
    let [bytes, count] = [amount.bytes.0, amount.count].map(u64::cast_signed);
    if bytes < 0 || count < 0 {
        return match measure {
            Measure::Bytes => signed(bytes, |bytes| Bytes::compact(Bytes(bytes))),
            Measure::Count | Measure::Time => signed(count, number::compact),
        };
    }
    match measure {
        Measure::Bytes => Bytes::compact(amount.bytes),
        Measure::Count | Measure::Time => number::compact(amount.count),
    }
}

fn signed(change: i64, cell: impl Fn(u64) -> String) -> String {
    format!("{}{}", if change < 0 { "-" } else { "" }, cell(change.unsigned_abs()))
}

/// Returns the suffix of a cell for an error in pages: ` ±1.31M`. Returns an empty text without an error.
pub(super) fn error(measure: Measure, pages: Option<u64>) -> String {
    let shown = |pages| amount(measure, Amount { bytes: estimate::size_of_pages(pages), count: pages });
    pages.filter(|pages| *pages > 0).map_or_else(String::new, |pages| format!(" ±{}", shown(pages)))
}

/// Returns the cell for an amount with its error, in the unit of the metric of `view`. `bytes`: quantity of the bytes.
/// `sampled`: the sampled part of the row.
pub(super) fn sum(view: MetricView<'_>, usage: &Quantities, sampled: &SampledPart, bytes: Quantity) -> String {
    let amount = usage.amount(bytes);
    let (quantity, number) = match view.measure() {
        Measure::Bytes => (Some(bytes), amount.bytes.0),
        Measure::Count | Measure::Time => (bytes.facts().pair, amount.count),
    };
    let uncertainty = quantity.and_then(|quantity| sampled.uncertainty(view.profile(), quantity));
    let error = uncertainty.map(|uncertainty| uncertainty.cell_suffix(view.measure(), number));
    self::amount(view.measure(), amount) + &error.unwrap_or_default()
}

/// Returns the cell for the peak of the live bytes with its error. `sampled`: the sampled part of the row.
pub(super) fn peak(profile: &Profile, peak: Bytes, sampled: &SampledPart) -> String {
    let uncertainty = sampled.uncertainty(profile, Quantity::AtPeakBytes);
    let error = uncertainty.map(|uncertainty| uncertainty.cell_suffix(Measure::Bytes, peak.0));
    peak.compact() + &error.unwrap_or_default()
}

/// Returns the column for live memory, with the head `live`, and the column for memory held at exit, if the profile
/// shows them. `column` makes a column from a head and the quantity of the bytes.
pub(super) fn held(
    profile: &Profile,
    live: &'static str,
    column: impl Fn(&'static str, Quantity) -> Column,
) -> impl Iterator<Item = Column> {
    let live = format::shows_live(profile).then(|| column(live, Quantity::LiveBytes));
    let exit = format::shows_exit(profile).then(|| column("AT EXIT", Quantity::ExitBytes));
    live.into_iter().chain(exit)
}

/// Returns the columns for the time and the number of stalls.
pub(super) fn stalls(cells: impl Iterator<Item = StallTotals> + Clone) -> [Column; 2] {
    [
        Column::numbers("STALLED", cells.clone().map(|stalls| stalls.time.to_string())),
        Column::numbers("TIMES", cells.map(|stalls| number::compact(stalls.count))),
    ]
}
