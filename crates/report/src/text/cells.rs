//! Cells of tables: amounts, their errors, and stalls.

use memtrace_model::format as number;
use memtrace_model::{Amount, Bytes, Measure, Profile, Quantities, StallTotals};

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

/// Returns the column for live memory, with the head `live`, and the column for memory held at exit, if the profile
/// shows them. `column` makes a column from a head and a getter of the amount.
pub(super) fn held(
    profile: &Profile,
    live: &'static str,
    column: impl Fn(&'static str, fn(&Quantities) -> Amount) -> Column,
) -> impl Iterator<Item = Column> {
    let live = format::shows_live(profile).then(|| column(live, Quantities::live));
    let exit = format::shows_exit(profile).then(|| column("AT EXIT", Quantities::exit));
    live.into_iter().chain(exit)
}

/// Returns the columns for the time and the number of stalls.
pub(super) fn stalls(cells: impl Iterator<Item = StallTotals> + Clone) -> [Column; 2] {
    [
        Column::numbers("STALLED", cells.clone().map(|stalls| stalls.time.to_string())),
        Column::numbers("TIMES", cells.map(|stalls| number::compact(stalls.count))),
    ]
}
