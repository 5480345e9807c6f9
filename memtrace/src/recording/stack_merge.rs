//! Merging of stacks in the database, if the merging of old intervals makes too little room.
//!
//! The smaller half of all stacks becomes one stack for each image, event class and part, with the end `merged`. The sums of
//! each image at each boundary stay exact. The rows move in small steps: if the writer is killed in between, a part of
//! them belongs to the merged stack, and sums are exact too.

use rusqlite::{Connection, ErrorCode, Result, Transaction, params};

use super::quantities::{MERGED_STACKS, end_number};
use crate::model::StackEnd;

/// Fewest stacks that are merged.
const MIN_STACKS: i64 = 16;

/// Most rows that a step reads, about.
const MAX_STEP: usize = 20_000;

/// Fewest rows to which a step is reduced if the file has no room for its results.
const MIN_STEP: usize = 64;

/// Rows that are moved: table, other columns of the key, sums, and action if the row exists.
const TABLES: [[&str; 4]; 2] = [
    [
        "change",
        "",
        "sum(live_bytes), sum(live_count), sum(exit_bytes), sum(exit_count), sum(alloc_bytes),
            sum(alloc_count)",
        "live_bytes = live_bytes + excluded.live_bytes, live_count = live_count + excluded.live_count,
            exit_bytes = exit_bytes + excluded.exit_bytes, exit_count = exit_count + excluded.exit_count,
            alloc_bytes = alloc_bytes + excluded.alloc_bytes, alloc_count = alloc_count + excluded.alloc_count",
    ],
    ["detail", ", quantity, idx", "sum(value)", "value = value + excluded.value"],
];

/// A merge of stacks in progress. `temp.merged_total` has the rows of `total` that disappear, with the row that gets their
/// numbers.
#[derive(Debug)]
pub(super) struct StackMerge {
    /// Intervals that can have rows of the stacks.
    intervals: Vec<i64>,
    /// Index of the table in progress; after the last one, the rows of `total` are removed.
    table: usize,
    /// Index of the interval in progress.
    interval: usize,
    /// First row of the next step.
    next: i64,
    /// Rows that a step reads, about.
    rows: usize,
}

impl StackMerge {
    /// Chooses the stacks: those with the fewest live bytes, and of these with the fewest allocated bytes. Rows of merged
    /// stacks get numbers after `last`. Returns the merge and the number of these rows; `None` if there are too few
    /// stacks.
    pub(super) fn start(
        connection: &mut Connection,
        intervals: Vec<i64>,
        last: i64,
        max_pages: u64,
    ) -> Result<Option<(Self, i64)>> {
        let Some(&first) = intervals.first() else { return Ok(None) };
        let transaction = connection.transaction()?;
        let stacks: i64 = transaction.query_one("SELECT count(*) FROM total WHERE path <> 0", [], |row| row.get(0))?;
        if stacks / 2 < MIN_STACKS {
            return Ok(None);
        }
        transaction.execute_batch(
            "DROP TABLE IF EXISTS temp.merged_total;
            DROP TABLE IF EXISTS temp.merged_stack;
            CREATE TEMP TABLE merged_total (total INTEGER PRIMARY KEY, target INTEGER);
            CREATE TEMP TABLE merged_stack (
                id INTEGER PRIMARY KEY, image INTEGER, class INTEGER, part_kind TEXT, part INTEGER, stacks INTEGER);
            CREATE INDEX temp.merged_stack_key ON merged_stack (image, class);",
        )?;
        transaction.execute(
            "INSERT INTO temp.merged_total SELECT id, NULL FROM total
                JOIN (SELECT total AS changed, sum(live_bytes) AS live, sum(alloc_bytes) AS allocated FROM change
                    GROUP BY total) ON changed = total.id
                WHERE path <> 0 ORDER BY abs(live), allocated LIMIT ?",
            [stacks / 2],
        )?;
        let end = end_number(StackEnd::Merged);
        // Each image has one merged stack: earlier ones are merged too.
        transaction.execute(
            "INSERT OR IGNORE INTO temp.merged_total SELECT id, NULL FROM total WHERE path = 0 AND \"end\" = ?",
            [end],
        )?;
        let targets = transaction.execute(
            "INSERT INTO temp.merged_stack
                SELECT ? + row_number() OVER (), image, class, part_kind, part, stacks FROM
                    (SELECT image, class, part_kind, part, sum(path <> 0) AS stacks FROM temp.merged_total
                        JOIN total ON total.id = merged_total.total GROUP BY image, class, part_kind, part)",
            [last],
        )?;
        transaction.execute(
            "UPDATE temp.merged_total SET target = (SELECT stack.id FROM total JOIN temp.merged_stack AS stack
                ON stack.image = total.image AND stack.class = total.class AND stack.part_kind IS total.part_kind
                    AND stack.part IS total.part
                WHERE total.id = merged_total.total)",
            [],
        )?;
        transaction.execute(
            "INSERT INTO total SELECT id, image, class, 0, ?, part_kind, part FROM temp.merged_stack",
            [end],
        )?;
        transaction.execute(
            "INSERT INTO detail SELECT ?, id, ?, 0, stacks FROM temp.merged_stack WHERE stacks > 0",
            params![first, MERGED_STACKS],
        )?;
        transaction.commit()?;
        let rows = usize::try_from(max_pages * 2).unwrap_or(MAX_STEP).min(MAX_STEP);
        let merge = Self { intervals, table: 0, interval: 0, next: 0, rows };
        Ok(Some((merge, i64::try_from(targets).unwrap_or(i64::MAX))))
    }

    /// Returns the row that gets the numbers of a row, if it disappears.
    pub(super) fn target(connection: &Connection, total: i64) -> Result<Option<i64>> {
        let mut target = connection.prepare_cached("SELECT target FROM temp.merged_total WHERE total = ?")?;
        let mut rows = target.query([total])?;
        rows.next()?.map(|row| row.get(0)).transpose()
    }

    /// Moves some rows in one transaction. Returns false if nothing is left.
    pub(super) fn step(&mut self, connection: &mut Connection) -> Result<bool> {
        let result = match TABLES.get(self.table) {
            Some(table) => self.move_rows(connection, table),
            None => self.remove_totals(connection),
        };
        match result {
            Ok(Some(end)) => self.next = end,
            Ok(None) if self.table >= TABLES.len() => return Ok(false),
            Ok(None) => {
                (self.interval, self.next) = (self.interval + 1, 0);
                if self.interval >= self.intervals.len() {
                    (self.table, self.interval) = (self.table + 1, 0);
                }
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) && self.rows > MIN_STEP => {
                self.rows /= 2;
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Moves rows of an interval. Returns the row of `total` with which the next step begins; `None` if none is left.
    fn move_rows(&self, connection: &mut Connection, table: &[&str; 4]) -> Result<Option<i64>> {
        let [name, key, sums, conflict] = table;
        let Some(&interval) = self.intervals.get(self.interval) else { return Ok(None) };
        let transaction = connection.transaction()?;
        let end = first_row(
            &transaction,
            &format!("SELECT total FROM {name} WHERE interval = ? AND total >= ? ORDER BY total LIMIT 1 OFFSET ?"),
            params![interval, self.next, self.rows.cast_signed()],
        )?;
        // A stack with more rows than a step is moved at once.
        let end = end.map(|end| end.max(self.next.saturating_add(1)));
        let until = end.unwrap_or(i64::MAX);
        let rows = format!("{name}.interval = ?1 AND {name}.total >= ?2 AND {name}.total < ?3");
        transaction
            .prepare_cached(&format!(
                "INSERT INTO {name} SELECT interval, target{key}, {sums} FROM {name}
                    JOIN temp.merged_total ON merged_total.total = {name}.total WHERE {rows}
                    GROUP BY interval, target{key} ON CONFLICT DO UPDATE SET {conflict}"
            ))?
            .execute(params![interval, self.next, until])?;
        transaction
            .prepare_cached(&format!(
                "DELETE FROM {name} WHERE {rows} AND total IN (SELECT total FROM temp.merged_total)"
            ))?
            .execute(params![interval, self.next, until])?;
        transaction.commit()?;
        Ok(end)
    }

    /// Removes rows of `total`. Returns the row with which the next step begins; `None` if none is left.
    fn remove_totals(&self, connection: &mut Connection) -> Result<Option<i64>> {
        let transaction = connection.transaction()?;
        let end = first_row(
            &transaction,
            "SELECT total FROM temp.merged_total WHERE total >= ? ORDER BY total LIMIT 1 OFFSET ?",
            params![self.next, self.rows.cast_signed()],
        )?;
        transaction
            .prepare_cached(
                "DELETE FROM total WHERE id IN (SELECT total FROM temp.merged_total WHERE total >= ? AND total < ?)",
            )?
            .execute(params![self.next, end.unwrap_or(i64::MAX)])?;
        transaction.commit()?;
        Ok(end)
    }
}

/// Returns the number in the first row of a query.
fn first_row(transaction: &Transaction<'_>, sql: &str, parameters: impl rusqlite::Params) -> Result<Option<i64>> {
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    rows.next()?.map(|row| row.get(0)).transpose()
}
