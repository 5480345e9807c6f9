//! Accounts as JSON.

use std::io;

use memtrace_json::{Account, AccountNumbers, Accounts, SCHEMA_VERSION};
use memtrace_model::{AccountTable, AccountTotals, Amount, MarkBounds};

use crate::json::{TOOL, occurred, tag_function};
use crate::json_lines;

/// Returns the numbers of a group. If water marks were not kept, the marks, the frees by other threads and the
/// unmatched frees are `None`.
pub(super) fn numbers(table: &AccountTable, totals: &AccountTotals) -> AccountNumbers {
    let AccountTotals { counters, live, exit, discarded, marks, .. } = totals;
    let marks = marks.as_ref();
    let bytes = |bound: fn(&MarkBounds) -> Amount| marks.map(|marks| bound(marks).bytes.0);
    let count = |bound: fn(&MarkBounds) -> Amount| marks.map(|marks| bound(marks).count);
    AccountNumbers {
        current_bytes: live.bytes.0,
        current_count: live.count,
        high_bytes_at_least: bytes(|marks| marks.high.at_least),
        high_count_at_least: count(|marks| marks.high.at_least),
        high_bytes_at_most: bytes(|marks| marks.high.at_most),
        high_count_at_most: count(|marks| marks.high.at_most),
        low_bytes_at_least: bytes(|marks| marks.low.at_least),
        low_count_at_least: count(|marks| marks.low.at_least),
        low_bytes_at_most: bytes(|marks| marks.low.at_most),
        low_count_at_most: count(|marks| marks.low.at_most),
        alloc_bytes: counters.alloc.bytes.0,
        alloc_count: counters.alloc.count,
        free_bytes: counters.free.bytes.0,
        free_count: counters.free.count,
        free_by_others_bytes: marks.map(|_| counters.free_by_others.bytes.0),
        free_by_others_count: marks.map(|_| counters.free_by_others.count),
        exit_bytes: exit.bytes.0,
        exit_count: exit.count,
        discarded_bytes: discarded.bytes.0,
        discarded_count: discarded.count,
        unmatched_frees: marks.map(|_| counters.unmatched_frees),
        peak_at_ms: table.peak_time(totals).map(|time| time.as_millis() as u64),
    }
}

/// Writes the table as one JSON object.
pub(super) fn write(table: &AccountTable, out: &mut dyn io::Write) -> io::Result<()> {
    let accounts = table
        .rows
        .iter()
        .map(|row| Account { names: row.names.iter().map(Into::into).collect(), numbers: numbers(table, &row.totals) });
    let page = Accounts {
        tool: TOOL,
        kind: "accounts".into(),
        schema_version: SCHEMA_VERSION,
        keys: table.keys.iter().map(|key| key.name().into()).collect(),
        elapsed_seconds: table.elapsed.as_secs_f64(),
        total: numbers(table, &table.total),
        losses: occurred(&table.losses),
        tag_functions: table.tag_functions.iter().map(tag_function).collect(),
        notes: table.notes.iter().map(Into::into).collect(),
        accounts: accounts.collect(),
    };
    json_lines::write(&page, out)
}
