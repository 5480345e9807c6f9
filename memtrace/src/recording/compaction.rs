//! Merging of old intervals in the database, in small steps.
//!
//! First the boundaries disappear: the rows of an interval count at the next boundary that remains, so totals are exact
//! from then on. Then the rows are merged, a few thousand in each transaction. If the writer is killed in between, some
//! rows stay unmerged, which costs space only.

use rusqlite::{Connection, Result, Transaction, params};

use super::merge_step::{MIN_ROWS, is_full, rows_of_step};
use super::retention::StoredInterval;
use super::schema::{ACCOUNT, ADD_AMOUNTS, ADD_EARLIER_MARKS, SUMS_OF_AMOUNTS};
use super::text::nanoseconds;

/// A table with rows that are merged.
struct Table {
    name: &'static str,
    /// First column of the key after the interval, if it is a number by which steps are divided.
    first: Option<&'static str>,
    /// Columns of the key after the interval.
    key: &'static str,
    /// Values of the merged row.
    values: &'static str,
    /// Assignments that add the values to those of the row, if it exists; `None` if the row remains as it is.
    add: Option<&'static str>,
}

const TABLES: [Table; 9] = [
    Table { name: "change", first: Some("total"), key: "total", values: SUMS_OF_AMOUNTS, add: Some(ADD_AMOUNTS) },
    Table {
        name: "detail",
        first: Some("total"),
        key: "total, quantity, idx",
        values: "sum(value)",
        add: Some("value = value + excluded.value"),
    },
    Table {
        name: "image_change",
        first: Some("image"),
        key: "image, class, quantity, idx",
        // 208 is `peak_rss_bytes`.
        values: "iif(quantity = 208, max(value), sum(value))",
        add: Some("value = iif(quantity = 208, max(value, excluded.value), value + excluded.value)"),
    },
    Table {
        name: "stall_change",
        first: Some("image"),
        key: "image, kind, cgroup_id, quantity, idx",
        // 302 is `longest_ns`.
        values: "iif(quantity = 302, max(value), sum(value))",
        add: Some("value = iif(quantity = 302, max(value, excluded.value), value + excluded.value)"),
    },
    Table {
        name: "merged_image",
        first: Some("image"),
        key: "image, class, end_kind",
        values: "sum(images), sum(traced_ns), sum(inherited_frees), min(first_start_ns), max(last_end_ns)",
        add: Some(
            "images = images + excluded.images, traced_ns = traced_ns + excluded.traced_ns,
            inherited_frees = inherited_frees + excluded.inherited_frees,
            first_start_ns = min(first_start_ns, excluded.first_start_ns),
            last_end_ns = max(last_end_ns, excluded.last_end_ns)",
        ),
    },
    Table {
        name: "loss",
        first: None,
        key: "reason",
        values: "sum(count)",
        add: Some("count = count + excluded.count"),
    },
    Table {
        name: "sample",
        first: Some("counter"),
        key: "counter",
        // The value of the row with the largest interval (sqlite.org/lang_select.html, bare columns).
        values: "value FROM (SELECT *, max(interval)",
        add: None,
    },
    Table {
        name: "account_interval",
        first: Some("account"),
        key: "account",
        // One row after another, the latest first: it has the totals.
        values: ACCOUNT,
        add: Some(ADD_EARLIER_MARKS),
    },
    Table { name: "fact", first: None, key: "topic, item", values: "value FROM (SELECT *, max(interval)", add: None },
];

/// A merge of intervals in progress.
#[derive(Debug)]
pub(super) struct Compaction {
    /// Interval that gets the rows.
    into: i64,
    /// The other intervals, as a list for SQL.
    others: Vec<i64>,
    /// Index of the table in progress.
    table: usize,
    /// First key of the next step.
    next: i64,
    /// Rows that a step reads, about.
    rows: usize,
}

impl Compaction {
    /// Removes the boundaries between `intervals`, which the last one absorbs.
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
        let start = nanoseconds(first.span.start);
        transaction.prepare_cached("UPDATE interval SET start_ns = ?, merged = ? WHERE id = ?")?.execute(params![
            start,
            merged.cast_signed(),
            last.id
        ])?;
        let mut row = transaction.prepare_cached("DELETE FROM interval WHERE id = ?")?;
        for id in &others {
            row.execute([id])?;
        }
        drop(row);
        transaction.commit()?;
        Ok(Some(Self { into: last.id, others, table: 0, next: 0, rows: rows_of_step(max_pages) }))
    }

    /// Merges some rows in one transaction. Returns false if no rows are left.
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
        self.merge_rows(&transaction, table, end)?;
        transaction.commit()?;
        Ok(end)
    }

    /// Returns the key at which a step ends that begins at `next`; `None` if it merges all other rows of the table.
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
        // A key with more rows than a step is merged at once.
        Ok(end.map(|end| end.max(self.next.saturating_add(1))))
    }

    fn merge_rows(&self, transaction: &Transaction<'_>, table: &Table, end: Option<i64>) -> Result<()> {
        let Table { name, first, key, values, add } = table;
        let others = self.others.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        let range = match (first, end) {
            (None, _) => String::new(),
            (Some(first), None) => format!(" AND {first} >= {}", self.next),
            (Some(first), Some(end)) => format!(" AND {first} >= {} AND {first} < {end}", self.next),
        };
        let rows = format!("interval IN ({others}){range}");
        let into = self.into;
        let conflict = add.map_or_else(|| String::from("NOTHING"), |add| format!("UPDATE SET {add}"));
        let insert = if *values == ACCOUNT {
            format!(
                "INSERT INTO {name} SELECT {into}, {key}, {values} FROM {name} WHERE {rows} ORDER BY interval DESC
                    ON CONFLICT DO {conflict}"
            )
        } else if values.contains(" FROM ") {
            format!(
                "INSERT INTO {name} SELECT {into}, {key}, {values} FROM {name} WHERE {rows} GROUP BY {key}) WHERE true
                    ON CONFLICT DO {conflict}"
            )
        } else {
            format!(
                "INSERT INTO {name} SELECT {into}, {key}, {values} FROM {name} WHERE {rows} GROUP BY {key}
                    ON CONFLICT DO {conflict}"
            )
        };
        transaction.execute(&insert, [])?;
        transaction.execute(&format!("DELETE FROM {name} WHERE {rows}"), [])?;
        Ok(())
    }
}
