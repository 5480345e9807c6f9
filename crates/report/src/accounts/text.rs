//! Accounts as text.

use std::io;

use memtrace_model::format::{clock, counted, duration, grouped};
use memtrace_model::{AccountRow, AccountTable, AccountTotals, Amount, AmountBounds, Bytes, plain};

use crate::format::{shortened, shortened_left};
use crate::table::{self, Column};
use crate::{escape, groups};

/// Maximum width of a name, in characters.
const NAME: usize = 40;

/// Writes a line with the duration, a table of the first `top` rows and the total, and notes about bounds and losses.
pub(super) fn write(table: &AccountTable, top: usize, out: &mut dyn io::Write) -> io::Result<()> {
    let shown = &table.rows[..top.min(table.rows.len())];
    let keys = table.keys.plural();
    let number = grouped(table.rows.len() as u64);
    let listed = if shown.len() < table.rows.len() { format!("{} of {number}", shown.len()) } else { number };
    writeln!(out, "{}  accounts of {keys}: {listed}\n", clock(table.elapsed))?;
    let total = AccountRow { names: vec![String::from("total"); table.keys.len().min(1)], totals: table.total };
    table::write(&columns(table, shown, &total), out)?;
    let has_bounds = shown
        .iter()
        .chain([&total])
        .any(|row| row.totals.marks.is_some_and(|marks| is_wide(marks.high) || is_wide(marks.low)));
    let is_unknown = shown.iter().any(|row| row.totals.marks.is_none());
    if has_bounds || is_unknown {
        writeln!(out)?;
    }
    if has_bounds {
        writeln!(out, "~ the mark is a bound: the order of changes in the accounts of a group is not known")?;
    }
    if is_unknown {
        writeln!(out, "- water marks are not kept by {keys}")?;
    }
    for (reason, count) in table.losses.iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "lost: {} ({})", counted(count, "event", "events"), reason.explanation())?;
    }
    table.notes.iter().try_for_each(|note| writeln!(out, "note: {}", plain(note)))
}

fn columns(table: &AccountTable, rows: &[AccountRow], total: &AccountRow) -> Vec<Column> {
    let all = || rows.iter().chain([total]);
    let column =
        |head, cell: &dyn Fn(&AccountTotals) -> String| Column::numbers(head, all().map(|row| cell(&row.totals)));
    let mut columns = Vec::new();
    for (index, key) in table.keys.iter().enumerate() {
        let name = |row: &AccountRow| row.names.get(index).map(|name| escape::visible(name)).unwrap_or_default();
        let shorten = if key.is_path() { shortened_left } else { shortened };
        columns.push(Column::text(groups::head(*key), all().map(|row| shorten(&name(row), NAME))));
    }
    columns.extend([
        column("CURRENT", &|totals| totals.live.bytes.to_string()),
        column("BLOCKS", &|totals| grouped(totals.live.count)),
        column("HIGH", &|totals| high(totals)),
        column("LOW", &|totals| low(totals)),
        column("ALLOCATED", &|totals| totals.counters.alloc.bytes.to_string()),
        column("FREED", &|totals| totals.counters.free.bytes.to_string()),
    ]);
    let mut add = |head, value: &dyn Fn(&AccountTotals) -> Option<String>| {
        if all().any(|row| value(&row.totals).is_some()) {
            let cells = all().map(|row| value(&row.totals).unwrap_or_else(|| String::from("-")));
            columns.push(Column::numbers(head, cells));
        }
    };
    add("BY OTHERS", &|totals| some(totals.counters.free_by_others));
    add("EXIT", &|totals| some(totals.exit));
    add("DISCARDED", &|totals| some(totals.discarded));
    add("UNMATCHED", &|totals| {
        let frees = totals.counters.unmatched_frees;
        (frees > 0).then(|| grouped(frees))
    });
    add("PEAK AT", &|totals| table.peak_time(totals).map(duration));
    columns
}

fn some(value: Amount) -> Option<String> {
    (value != Amount::default()).then(|| value.bytes.to_string())
}

fn is_wide(bounds: AmountBounds) -> bool {
    bounds.at_least.bytes != bounds.at_most.bytes
}

/// Returns the high-water mark of the bytes, or its upper bound with a tilde; `-` if it was not kept.
fn high(totals: &AccountTotals) -> String {
    totals.marks.map_or_else(|| String::from("-"), |marks| bound(marks.high, marks.high.at_most.bytes))
}

/// Returns the low-water mark of the bytes, or its lower bound with a tilde; `-` if it was not kept.
fn low(totals: &AccountTotals) -> String {
    totals.marks.map_or_else(|| String::from("-"), |marks| bound(marks.low, marks.low.at_least.bytes))
}

fn bound(bounds: AmountBounds, shown: Bytes) -> String {
    let sign = if is_wide(bounds) { "~" } else { "" };
    format!("{sign}{shown}")
}
