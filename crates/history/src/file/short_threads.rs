//! Removal of monitored threads that started and ended in a merged interval. Their usage remains part of the usage
//! of their process.

use std::ops::Range;

use rusqlite::{Result, Transaction};

/// Removes threads that have rows in `intervals`, and that started and ended within `span`. `intervals`: IDs,
/// separated by commas. `numbers`: range of the thread numbers to check. `span`: nanoseconds since the start of the
/// recording. A thread has no rows before its start or after its end.
pub(super) fn remove(
    transaction: &Transaction<'_>,
    intervals: &str,
    numbers: Range<i64>,
    span: &Range<i64>,
) -> Result<()> {
    let rows = "interval IN (SELECT value FROM json_each(?1)) AND thread >= ?2 AND thread < ?3";
    let list = format!("[{intervals}]");
    let removed = transaction
        .prepare_cached(&format!(
            "DELETE FROM monitored_thread WHERE id IN (SELECT thread FROM thread_interval WHERE {rows})
                AND start_ns >= ?4 AND end_ns <= ?5"
        ))?
        .execute((&list, numbers.start, numbers.end, span.start, span.end))?;
    if removed > 0 {
        transaction
            .prepare_cached(&format!(
                "DELETE FROM thread_interval WHERE {rows}
                    AND NOT EXISTS (SELECT 1 FROM monitored_thread WHERE id = thread)"
            ))?
            .execute((&list, numbers.start, numbers.end))?;
    }
    Ok(())
}
