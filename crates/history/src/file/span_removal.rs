//! Removal of short spans from the database, in small steps. One transaction removes some spans and counts them.

use memtrace_model::Nanoseconds;
use rusqlite::{Connection, OptionalExtension as _, Result, params};

use super::merge_step::{MIN_ROWS, is_full, rows_of_step};
use super::schema::ADD_LEFT_OUT;

/// A removal in progress.
#[derive(Debug)]
pub(super) struct SpanRemoval {
    /// Duration below which spans are removed.
    shorter_than: Nanoseconds,
    /// Key of the first span of the next step: interval and index.
    next: (i64, i64),
    /// Number of rows that a step reads.
    rows: usize,
}

impl SpanRemoval {
    pub(super) fn new(shorter_than: Nanoseconds, max_pages: u64) -> Self {
        Self { shorter_than, next: (0, 0), rows: rows_of_step(max_pages) }
    }

    pub(super) const fn shorter_than(&self) -> Nanoseconds {
        self.shorter_than
    }

    /// Removes some spans in one transaction. Returns false if none is left.
    pub(super) fn step(&mut self, connection: &mut Connection) -> Result<bool> {
        match self.remove(connection) {
            Ok(Some(next)) => self.next = next,
            Ok(None) => return Ok(false),
            Err(error) if is_full(&error) && self.rows > MIN_ROWS => self.rows /= 2,
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Removes the short spans of one step. Returns the key of the first span of the next step; `None` if none is
    /// left.
    fn remove(&self, connection: &mut Connection) -> Result<Option<(i64, i64)>> {
        let transaction = connection.transaction()?;
        let (from, duration) = (self.next, self.shorter_than.0.cast_signed());
        let end = transaction
            .prepare_cached(
                "SELECT interval, idx FROM span WHERE (interval, idx) >= (?, ?) ORDER BY interval, idx LIMIT 1 OFFSET ?",
            )?
            .query_row(params![from.0, from.1, self.rows.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let until = end.unwrap_or((i64::MAX, i64::MAX));
        let range = params![duration, from.0, from.1, until.0, until.1];
        // If the interval of a span was merged, the span counts in the interval that absorbed it.
        transaction
            .prepare_cached(&format!(
                "WITH removed AS (SELECT interval, count(*) AS spans FROM span WHERE {SHORT} GROUP BY interval),
                    counted AS (SELECT (SELECT min(id) FROM interval WHERE id >= removed.interval) AS interval, spans
                        FROM removed)
                INSERT INTO activity_left_out
                    SELECT * FROM (SELECT interval, 'spans', spans FROM counted
                        UNION ALL SELECT interval, 'shorter_than_ns', ?1 FROM counted) WHERE true
                    ON CONFLICT DO UPDATE SET {ADD_LEFT_OUT}"
            ))?
            .execute(range)?;
        transaction.prepare_cached(&format!("DELETE FROM span WHERE {SHORT}"))?.execute(range)?;
        transaction.commit()?;
        Ok(end)
    }
}

/// Condition for the short spans of a step: shorter than ?1, and with a key from (?2, ?3) up to, but not including,
/// (?4, ?5).
const SHORT: &str = "(interval, idx) >= (?2, ?3) AND (interval, idx) < (?4, ?5) AND end_ns - begin_ns < ?1";
