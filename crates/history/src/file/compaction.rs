//! Merging of old intervals in the database, in small steps.
//!
//! First, one transaction deletes the boundaries from the table `interval`. The rows of a deleted interval count at
//! the next boundary that remains, so totals stay exact. Then the rows are merged in transactions of at most about
//! 20,000 rows. If the writer is killed in between, some rows stay unmerged, which costs only space.

use std::ops::Range;

use rusqlite::{Connection, Result, Transaction, params};

use super::merge_step::{MIN_ROWS, is_full, rows_of_step};
use super::quantities::{add_value, merged_value};
use super::schema::{ACCOUNT, ADD_EARLIER_MARKS, ADD_LEFT_OUT, add_amounts, sums_of_amounts};
use super::short_threads;
use super::text::nanoseconds;
use super::usage_columns::{ADD_THREADS, ADD_USAGE, PROCESS_COLUMNS, USAGE};
use crate::retention::StoredInterval;

/// Rules for merging the rows of a table.
struct Table {
    name: &'static str,
    /// First key column after `interval`. Each step merges a range of its values; `None` if one step merges the whole
    /// table.
    first: Option<&'static str>,
    /// Key columns after `interval`.
    key: &'static str,
    rows: Rows,
    /// Assignments that add the values of a new row to an existing row. Without assignments, the existing row
    /// remains as it is. [`Rows::Amounts`] and [`Rows::Values`] have their own assignments.
    add: &'static [&'static str],
}

/// Rows that a merge inserts into the merged interval.
enum Rows {
    /// One row for each key, with the sums of the quantities. The sums are added to an existing row of the key.
    Amounts,
    /// One row for each key, with the sum or the maximum of `value`. It is added to an existing row of the key.
    Values,
    /// One row for each key, with these aggregate expressions.
    Groups(&'static str),
    /// The latest row of each key, with this column.
    Last(&'static str),
    /// All rows with these columns, the latest first.
    Each(&'static [&'static str]),
}

/// Table with the usage of threads. Threads that started and ended in the merged interval are removed from it.
const THREAD_TABLE: &str = "thread_interval";

const TABLES: [Table; 16] = [
    Table { name: "change", first: Some("total"), key: "total", rows: Rows::Amounts, add: &[] },
    Table { name: "detail", first: Some("total"), key: "total, quantity, idx", rows: Rows::Values, add: &[] },
    Table {
        name: "image_change",
        first: Some("image"),
        key: "image, class, quantity, idx",
        rows: Rows::Values,
        add: &[],
    },
    Table {
        name: "stall_change",
        first: Some("image"),
        key: "image, kind, cgroup_id, quantity, idx",
        rows: Rows::Values,
        add: &[],
    },
    Table {
        name: "merged_image",
        first: Some("image"),
        key: "image, class, end_kind",
        rows: Rows::Groups("sum(images), sum(traced_ns), sum(inherited_frees), min(first_start_ns), max(last_end_ns)"),
        add: &["images = images + excluded.images, traced_ns = traced_ns + excluded.traced_ns,
            inherited_frees = inherited_frees + excluded.inherited_frees,
            first_start_ns = min(first_start_ns, excluded.first_start_ns),
            last_end_ns = max(last_end_ns, excluded.last_end_ns)"],
    },
    Table {
        name: "loss",
        first: None,
        key: "reason",
        rows: Rows::Groups("sum(count)"),
        add: &["count = count + excluded.count"],
    },
    Table { name: "sample", first: Some("counter"), key: "counter", rows: Rows::Last("value"), add: &[] },
    Table {
        name: "account_interval",
        first: Some("account"),
        key: "account",
        // `ADD_EARLIER_MARKS` changes only the water marks: the totals of the latest row remain.
        rows: Rows::Each(&[ACCOUNT]),
        add: &[ADD_EARLIER_MARKS],
    },
    Table {
        name: THREAD_TABLE,
        first: Some("thread"),
        key: "thread",
        // The state of the latest row remains.
        rows: Rows::Each(&[USAGE, "state"]),
        add: &[ADD_USAGE],
    },
    Table {
        name: "process_interval",
        first: Some("image"),
        key: "image",
        rows: Rows::Each(&[USAGE, PROCESS_COLUMNS]),
        add: &[ADD_USAGE, ADD_THREADS],
    },
    Table { name: "fact", first: None, key: "topic, item", rows: Rows::Last("value"), add: &[] },
    // `span` and `activity_event` are not merged: their rows count at the next boundary.
    Table {
        name: "span_total",
        first: Some("name"),
        key: "name, kind",
        rows: Rows::Groups(
            "sum(count), sum(time_ns), max(longest_ns), sum(cpu_ns), sum(allocated_bytes), sum(lost_ends), sum(missing)",
        ),
        add: &["count = count + excluded.count, time_ns = time_ns + excluded.time_ns,
            longest_ns = max(longest_ns, excluded.longest_ns), cpu_ns = cpu_ns + excluded.cpu_ns,
            allocated_bytes = allocated_bytes + excluded.allocated_bytes, lost_ends = lost_ends + excluded.lost_ends,
            missing = missing + excluded.missing"],
    },
    Table {
        name: "lock_total",
        first: Some("lock"),
        key: "lock",
        rows: Rows::Groups(
            "sum(waits), sum(wait_ns), max(longest_wait_ns), sum(holds), sum(hold_ns), max(longest_hold_ns), max(most_waiters)",
        ),
        add: &["waits = waits + excluded.waits, wait_ns = wait_ns + excluded.wait_ns,
            longest_wait_ns = max(longest_wait_ns, excluded.longest_wait_ns), holds = holds + excluded.holds,
            hold_ns = hold_ns + excluded.hold_ns, longest_hold_ns = max(longest_hold_ns, excluded.longest_hold_ns),
            most_waiters = max(most_waiters, excluded.most_waiters)"],
    },
    Table {
        name: "call_total",
        first: Some("name"),
        key: "name",
        rows: Rows::Groups("sum(count), sum(time_ns)"),
        add: &["count = count + excluded.count, time_ns = time_ns + excluded.time_ns"],
    },
    Table {
        name: "call_histogram",
        first: Some("name"),
        key: "name, idx",
        rows: Rows::Groups("sum(count)"),
        add: &["count = count + excluded.count"],
    },
    Table {
        name: "activity_left_out",
        first: None,
        key: "item",
        rows: Rows::Groups("iif(item = 'shorter_than_ns', max(value), sum(value))"),
        add: &[ADD_LEFT_OUT],
    },
];

/// A merge of intervals in progress.
#[derive(Debug)]
pub(super) struct Compaction {
    /// ID of the interval that absorbs the others.
    into: i64,
    /// IDs of the other intervals.
    others: Vec<i64>,
    /// Span of the merged interval, in nanoseconds.
    span: Range<i64>,
    /// Index in [`TABLES`] of the table in progress.
    table: usize,
    /// First value of the column [`Table::first`] in the next step.
    next: i64,
    /// Approximate number of rows that a step reads.
    rows: usize,
}

impl Compaction {
    /// Removes the boundaries between `intervals`: the last interval absorbs the others. Returns `None` for fewer
    /// than two intervals.
    pub(super) fn start(
        connection: &mut Connection,
        intervals: &[StoredInterval],
        max_pages: u64,
    ) -> Result<Option<Self>> {
        let [others @ .., last] = intervals else { return Ok(None) };
        let Some(first) = others.first() else { return Ok(None) };
        let others: Vec<i64> = others.iter().map(|interval| interval.id).collect();
        let merged: u64 = intervals.iter().map(|interval| interval.merged).sum();
        let transaction = connection.transaction()?;
        let span = nanoseconds(first.span.start)..nanoseconds(last.span.end);
        transaction.prepare_cached("UPDATE interval SET start_ns = ?, merged = ? WHERE id = ?")?.execute(params![
            span.start,
            merged.cast_signed(),
            last.id
        ])?;
        let mut row = transaction.prepare_cached("DELETE FROM interval WHERE id = ?")?;
        for id in &others {
            row.execute([id])?;
        }
        drop(row);
        transaction.commit()?;
        Ok(Some(Self { into: last.id, others, span, table: 0, next: 0, rows: rows_of_step(max_pages) }))
    }

    /// Merges some rows in one transaction. Returns false if all tables are merged.
    pub(super) fn step(&mut self, connection: &mut Connection) -> Result<bool> {
        let Some(table) = TABLES.get(self.table) else { return Ok(false) };
        match self.try_step(connection, table) {
            Ok(Some(end)) => self.next = end,
            Ok(None) => (self.table, self.next) = (self.table + 1, 0),
            Err(error) if is_full(&error) && self.rows > MIN_ROWS => self.rows /= 2,
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn try_step(&self, connection: &mut Connection, table: &Table) -> Result<Option<i64>> {
        let transaction = connection.transaction()?;
        let end = self.end_of_step(&transaction, table)?;
        if table.name == THREAD_TABLE {
            short_threads::remove(&transaction, &self.all(), self.next..end.unwrap_or(i64::MAX), &self.span)?;
        }
        self.merge_rows(&transaction, table, end)?;
        transaction.commit()?;
        Ok(end)
    }

    /// Returns the first value of [`Table::first`] that the step at `next` does not merge; `None` if the step merges
    /// the rest of the table.
    fn end_of_step(&self, transaction: &Transaction<'_>, table: &Table) -> Result<Option<i64>> {
        let Some(first) = table.first else { return Ok(None) };
        let rows = self.rows / (self.others.len() + 1);
        let sql = format!(
            "SELECT {first} FROM {} WHERE interval = ? AND {first} >= ? ORDER BY {first} LIMIT 1 OFFSET {rows}",
            table.name
        );
        let mut statement = transaction.prepare(&sql)?;
        let mut end: Option<i64> = None;
        for id in self.others.iter().chain([&self.into]) {
            let mut found = statement.query([*id, self.next])?;
            if let Some(row) = found.next()? {
                let key: i64 = row.get(0)?;
                end = Some(end.map_or(key, |end| end.min(key)));
            }
        }
        // A key with more rows than a step is merged in one step.
        Ok(end.map(|end| end.max(self.next.saturating_add(1))))
    }

    fn merge_rows(&self, transaction: &Transaction<'_>, table: &Table, end: Option<i64>) -> Result<()> {
        let Table { name, first, key, rows, add } = table;
        let others = list(&self.others);
        let range = match (first, end) {
            (None, _) => String::new(),
            (Some(first), None) => format!(" AND {first} >= {}", self.next),
            (Some(first), Some(end)) => format!(" AND {first} >= {} AND {first} < {end}", self.next),
        };
        let old = format!("interval IN ({others}){range}");
        let into = self.into;
        let groups = |values: &str| format!("SELECT {into}, {key}, {values} FROM {name} WHERE {old} GROUP BY {key}");
        let new = match rows {
            Rows::Amounts => groups(&sums_of_amounts()),
            Rows::Values => groups(&merged_value()),
            Rows::Groups(values) => groups(values),
            // SQLite takes the other columns from the row with the largest interval (sqlite.org/lang_select.html, bare
            // columns).
            Rows::Last(value) => format!(
                "SELECT {into}, {key}, {value} FROM (SELECT *, max(interval) FROM {name} WHERE {old} GROUP BY {key})
                    WHERE true"
            ),
            Rows::Each(columns) => {
                let columns = columns.join(", ");
                format!("SELECT {into}, {key}, {columns} FROM {name} WHERE {old} ORDER BY interval DESC")
            }
        };
        let add = match rows {
            Rows::Amounts => add_amounts(),
            Rows::Values => add_value(),
            Rows::Groups(_) | Rows::Last(_) | Rows::Each(_) => add.join(", "),
        };
        let conflict = if add.is_empty() { String::from("NOTHING") } else { format!("UPDATE SET {add}") };
        transaction.execute(&format!("INSERT INTO {name} {new} ON CONFLICT DO {conflict}"), [])?;
        transaction.execute(&format!("DELETE FROM {name} WHERE {old}"), [])?;
        Ok(())
    }

    /// Returns the IDs of all intervals of the merge as a list for SQL.
    fn all(&self) -> String {
        format!("{}, {}", list(&self.others), self.into)
    }
}

fn list(intervals: &[i64]) -> String {
    intervals.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}
