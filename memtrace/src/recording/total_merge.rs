//! Merging of totals in the database, in small steps: some totals give their numbers to others and disappear.
//!
//! Each step moves the rows of a range of totals in one transaction. If the writer is killed in between, a part of the rows
//! belongs to the other total, and sums are exact too.

use rusqlite::{Connection, Result, Transaction, params};

use super::merge_step::{MIN_ROWS, first_number, is_full, rows_of_step};

/// A table with rows of totals.
struct Table {
    name: &'static str,
    /// Columns of the key after interval and total.
    key: &'static str,
    /// Sums of the other columns.
    sums: &'static str,
    /// Action if the row exists.
    conflict: &'static str,
}

const TABLES: [Table; 2] = [
    Table {
        name: "change",
        key: "",
        sums: "sum(live_bytes), sum(live_count), sum(exit_bytes), sum(exit_count), sum(alloc_bytes), sum(alloc_count)",
        conflict: "live_bytes = live_bytes + excluded.live_bytes, live_count = live_count + excluded.live_count,
            exit_bytes = exit_bytes + excluded.exit_bytes, exit_count = exit_count + excluded.exit_count,
            alloc_bytes = alloc_bytes + excluded.alloc_bytes, alloc_count = alloc_count + excluded.alloc_count",
    },
    Table { name: "detail", key: ", quantity, idx", sums: "sum(value)", conflict: "value = value + excluded.value" },
];

/// `merged_total` has the totals that disappear, with those that get their numbers. The other tables have the new rows of a
/// step, until the old ones are deleted: a step uses the pages that it frees, so that it fits into a file at its limit.
const TEMPORARY_TABLES: &str = "
    DROP TABLE IF EXISTS temp.merged_total;
    DROP TABLE IF EXISTS temp.moved_change;
    DROP TABLE IF EXISTS temp.moved_detail;
    CREATE TEMP TABLE merged_total (total INTEGER PRIMARY KEY, target INTEGER);
    CREATE TEMP TABLE moved_change (
        interval, total, live_bytes, live_count, exit_bytes, exit_count, alloc_bytes, alloc_count);
    CREATE TEMP TABLE moved_detail (interval, total, quantity, idx, value);";

/// A merge of totals in progress.
#[derive(Debug)]
pub(super) struct TotalMerge {
    /// Intervals that can have rows of the totals.
    intervals: Vec<i64>,
    /// Index of the table in progress; after the last one, the rows of `total` are removed.
    table: usize,
    /// Index of the interval in progress.
    interval: usize,
    /// First total of the next step.
    next: i64,
    /// Rows that a step reads, about.
    rows: usize,
}

impl TotalMerge {
    /// Creates `temp.merged_total`, which the caller fills.
    pub(super) fn create_tables(transaction: &Transaction<'_>) -> Result<()> {
        transaction.execute_batch(TEMPORARY_TABLES)
    }

    /// Returns the merge of the totals in `temp.merged_total`.
    pub(super) fn new(intervals: Vec<i64>, max_pages: u64) -> Self {
        Self { intervals, table: 0, interval: 0, next: 0, rows: rows_of_step(max_pages) }
    }

    /// Returns the total that gets the numbers of a total, if that disappears.
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
            Err(error) if is_full(&error) && self.rows > MIN_ROWS => self.rows /= 2,
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Moves rows of an interval. Returns the total with which the next step begins; `None` if none is left.
    fn move_rows(&self, connection: &mut Connection, table: &Table) -> Result<Option<i64>> {
        let Table { name, key, sums, conflict } = table;
        let Some(&interval) = self.intervals.get(self.interval) else { return Ok(None) };
        let transaction = connection.transaction()?;
        let end = first_number(
            &transaction,
            &format!("SELECT total FROM {name} WHERE interval = ? AND total >= ? ORDER BY total LIMIT 1 OFFSET ?"),
            params![interval, self.next, self.rows.cast_signed()],
        )?;
        // A total with more rows than a step is moved at once.
        let end = end.map(|end| end.max(self.next.saturating_add(1)));
        let until = end.unwrap_or(i64::MAX);
        // The range is read in order: CROSS JOIN and + keep SQLite from looking up each merged total in each interval.
        let rows = format!("{name}.interval = ?1 AND {name}.total >= ?2 AND {name}.total < ?3");
        let range = params![interval, self.next, until];
        let moved = transaction
            .prepare_cached(&format!(
                "INSERT INTO temp.moved_{name} SELECT interval, target{key}, {sums} FROM {name}
                    CROSS JOIN temp.merged_total ON merged_total.total = {name}.total WHERE {rows}
                    GROUP BY interval, target{key}"
            ))?
            .execute(range)?;
        if moved > 0 {
            let delete = format!("DELETE FROM {name} WHERE {rows} AND +total IN (SELECT total FROM temp.merged_total)");
            transaction.prepare_cached(&delete)?.execute(range)?;
            transaction
                .prepare_cached(&format!(
                    "INSERT INTO {name} SELECT * FROM temp.moved_{name} WHERE true ON CONFLICT DO UPDATE SET {conflict}"
                ))?
                .execute([])?;
            transaction.prepare_cached(&format!("DELETE FROM temp.moved_{name}"))?.execute([])?;
        }
        transaction.commit()?;
        Ok(end)
    }

    /// Removes rows of `total`. Returns the row with which the next step begins; `None` if none is left.
    fn remove_totals(&self, connection: &mut Connection) -> Result<Option<i64>> {
        let transaction = connection.transaction()?;
        let end = first_number(
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
