//! Merging of totals in the database, in small steps: the rows of a total are added to another total, its target,
//! and the total is removed.
//!
//! Each step moves all rows of a range of totals in one transaction. If the writer is killed or gives up between
//! two steps, each total either has all of its rows or has been merged.

use memtrace_model::Quantity;
use rusqlite::{Connection, Result, Transaction, params};
use rustc_hash::FxHashMap;

use super::merge_step::{first_number, is_full, rows_of_step};
use super::quantities::{add_value, detail_number, merged_value};
use super::schema::{add_amounts, amounts, sums_of_amounts};

/// Number of totals in the first step. The number of rows decides the size of later steps: a stack of an ended
/// process has about two rows, and a stack of a long-running process has some in each interval.
const FIRST_TOTALS: usize = 64;

/// Minimum number of totals in a step.
const MIN_TOTALS: usize = 8;

/// A table with rows that belong to totals.
struct Table {
    name: &'static str,
    /// Key columns after `interval` and `total`, each after a comma.
    key: &'static str,
    /// Value columns.
    columns: String,
    /// Sums of the value columns.
    sums: String,
    /// Assignments that add the value columns to an existing row.
    add: String,
}

fn tables() -> [Table; 2] {
    let (columns, sums, add) = (String::from("value"), merged_value(), add_value());
    [
        Table { name: "change", key: "", columns: amounts(), sums: sums_of_amounts(), add: add_amounts() },
        Table { name: "detail", key: ", quantity, idx", columns, sums, add },
    ]
}

/// `merged_total` lists the totals to merge, with their targets. The other tables hold the new rows of a step until
/// the old rows are deleted. So a step can use the pages that it frees, and fits into a file at its limit.
const TEMPORARY_TABLES: &str = "
    DROP TABLE IF EXISTS temp.merged_total;
    DROP TABLE IF EXISTS temp.moved_change;
    DROP TABLE IF EXISTS temp.moved_detail;
    CREATE TEMP TABLE merged_total (total INTEGER PRIMARY KEY, target INTEGER);";

/// A merge of totals in progress.
#[derive(Debug)]
pub(super) struct TotalMerge {
    kind: TotalMergeKind,
    /// Row number of the first total of the next step.
    next: i64,
    /// Number of totals that the next step moves.
    totals: usize,
    /// Approximate number of rows that a step moves.
    rows: usize,
}

/// Kind of the totals that are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TotalMergeKind {
    /// Different stacks. The quantity `merged_stacks` of the target counts them.
    Stacks {
        /// ID of the interval that gets the count.
        counted_in: i64,
    },
    /// Rows of the same stack.
    EqualStacks,
}

impl TotalMerge {
    /// Creates `temp.merged_total`, which the caller fills.
    pub(super) fn create_tables(transaction: &Transaction<'_>) -> Result<()> {
        transaction.execute_batch(TEMPORARY_TABLES)?;
        tables().iter().try_for_each(|Table { name, key, columns, .. }| {
            transaction.execute_batch(&format!("CREATE TEMP TABLE moved_{name} (interval, total{key}, {columns})"))
        })
    }

    /// Returns the merge of the totals in `temp.merged_total`.
    pub(super) fn new(kind: TotalMergeKind, max_pages: u64) -> Self {
        Self { kind, next: 0, totals: FIRST_TOTALS, rows: rows_of_step(max_pages) }
    }

    pub(super) const fn kind(&self) -> TotalMergeKind {
        self.kind
    }

    /// Moves the rows of some totals in one transaction. Returns the removed totals with their targets; `None` if
    /// nothing is left.
    pub(super) fn step(&mut self, connection: &mut Connection) -> Result<Option<FxHashMap<i64, i64>>> {
        match self.move_totals(connection) {
            Err(error) if is_full(&error) && self.totals > MIN_TOTALS => {
                self.totals /= 2;
                self.rows /= 2;
                Ok(Some(FxHashMap::default()))
            }
            result => result,
        }
    }

    fn move_totals(&mut self, connection: &mut Connection) -> Result<Option<FxHashMap<i64, i64>>> {
        let transaction = connection.transaction()?;
        let end = first_number(
            &transaction,
            "SELECT total FROM temp.merged_total WHERE total >= ? ORDER BY total LIMIT 1 OFFSET ?",
            params![self.next, self.totals.cast_signed()],
        )?;
        let range = [self.next, end.unwrap_or(i64::MAX)];
        let moved: FxHashMap<i64, i64> = transaction
            .prepare_cached("SELECT total, target FROM temp.merged_total WHERE total >= ? AND total < ?")?
            .query_map(range, |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_>>()?;
        if moved.is_empty() {
            return Ok(None);
        }
        if let TotalMergeKind::Stacks { counted_in } = self.kind {
            count_stacks(&transaction, counted_in, range)?;
        }
        let rows: usize = tables().iter().map(|table| move_rows(&transaction, table, range)).sum::<Result<_>>()?;
        transaction
            .prepare_cached(
                "DELETE FROM total WHERE id IN (SELECT total FROM temp.merged_total WHERE total >= ? AND total < ?)",
            )?
            .execute(range)?;
        transaction.commit()?;
        self.next = range[1];
        if rows > self.rows {
            self.totals = (self.totals / 2).max(MIN_TOTALS);
        } else if rows < self.rows / 2 {
            self.totals *= 2;
        }
        Ok(Some(moved))
    }
}

/// Adds the number of stacks in a range of totals to `merged_stacks` of their targets. Stacks of earlier merges
/// have no path and are not counted again.
fn count_stacks(transaction: &Transaction<'_>, counted_in: i64, [from, until]: [i64; 2]) -> Result<()> {
    transaction
        .prepare_cached(&format!(
            "INSERT INTO detail SELECT ?1, target, ?2, 0, count(*) FROM temp.merged_total
                JOIN total ON total.id = merged_total.total
                WHERE merged_total.total >= ?3 AND merged_total.total < ?4 AND path <> 0 GROUP BY target
                ON CONFLICT DO UPDATE SET {}",
            add_value()
        ))?
        .execute(params![counted_in, detail_number(Quantity::MergedStacks), from, until])?;
    Ok(())
}

/// Moves the rows of a range of totals in all intervals. Returns the number of moved rows.
fn move_rows(transaction: &Transaction<'_>, table: &Table, range: [i64; 2]) -> Result<usize> {
    let Table { name, key, sums, add, .. } = table;
    // CROSS JOIN and the unary + make SQLite scan the range in each interval, instead of looking up each merged total.
    let rows = format!("{name}.interval IN (SELECT id FROM interval) AND {name}.total >= ?1 AND {name}.total < ?2");
    let sums_of_rows = transaction
        .prepare_cached(&format!(
            "INSERT INTO temp.moved_{name} SELECT interval, target{key}, {sums} FROM {name}
                CROSS JOIN temp.merged_total ON merged_total.total = {name}.total WHERE {rows}
                GROUP BY interval, target{key}"
        ))?
        .execute(range)?;
    if sums_of_rows == 0 {
        return Ok(0);
    }
    let delete = format!("DELETE FROM {name} WHERE {rows} AND +total IN (SELECT total FROM temp.merged_total)");
    let moved = transaction.prepare_cached(&delete)?.execute(range)?;
    transaction
        .prepare_cached(&format!(
            "INSERT INTO {name} SELECT * FROM temp.moved_{name} WHERE true ON CONFLICT DO UPDATE SET {add}"
        ))?
        .execute([])?;
    transaction.prepare_cached(&format!("DELETE FROM temp.moved_{name}"))?.execute([])?;
    Ok(moved)
}
