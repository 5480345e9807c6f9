//! Merging of ended images in the database: the rows of an image move to the group of its executable, user and
//! cgroup.
//!
//! Images move in small steps. One transaction moves all totals of an image and counts the image in its group. If
//! the writer is killed between two steps, some images are merged and others are not; sums and counts are exact in
//! both cases.

mod choice;

use memtrace_model::EventClass;
use rusqlite::{Connection, Result, Transaction, params};

use super::merge_step::{MIN_ROWS, first_number, is_full, rows_of_step};
use super::quantities::{add_value, class_number, list_image_values, merged_value};
use super::schema::PART;
use super::total_merge::{TotalMerge, TotalMergeKind};
use super::usage_columns::{ADD_THREADS, ADD_USAGE, USAGE};

/// Approximate number of rows that a step reads and writes for an image, without its stacks, counters and threads.
const ROWS_OF_IMAGE: isize = 8;

const REMOVE_BATCH_TABLES: &str = "
    DROP TABLE IF EXISTS temp.batch_value;
    DROP TABLE IF EXISTS temp.batch_stall;
    DROP TABLE IF EXISTS temp.batch_usage;
    DROP TABLE IF EXISTS temp.batch_count;";

/// Temporary tables for copies of the rows that a step moves. The originals are deleted before the new rows are
/// inserted, so the new rows can use the freed pages.
const BATCH_TABLES: &str = "
    CREATE TEMP TABLE batch_value (interval, image, class, quantity, idx, value);
    CREATE TEMP TABLE batch_stall (interval, image, kind, cgroup_id, quantity, idx, value);
    CREATE TEMP TABLE batch_usage AS SELECT * FROM process_interval WHERE false;
    CREATE TEMP TABLE batch_count (
        interval, image, class, end_kind, images, traced_ns, inherited_frees, first_start_ns, last_end_ns);";

/// Copies the rows of merged images with IDs from ?1 to ?2 - 1. The unary + keeps SQLite from looking up each image in
/// each interval.
const READ_VALUES: &str = "INSERT INTO temp.batch_value SELECT interval, image, class, quantity, idx, value
    FROM image_change WHERE interval IN (SELECT id FROM interval) AND image >= ?1 AND image < ?2
        AND +image IN (SELECT image FROM temp.old_image)";
const READ_STALLS: &str = "INSERT INTO temp.batch_stall SELECT interval, image, kind, cgroup_id, quantity, idx, value
    FROM stall_change WHERE interval IN (SELECT id FROM interval) AND image >= ?1 AND image < ?2
        AND +image IN (SELECT image FROM temp.old_image)";
const READ_USAGE: &str = "INSERT INTO temp.batch_usage SELECT * FROM process_interval
    WHERE interval IN (SELECT id FROM interval) AND image >= ?1 AND image < ?2
        AND +image IN (SELECT image FROM temp.old_image)";

/// Counts the images with IDs from ?1 to ?2 - 1 in their groups, in each event class with changes. As in reports, an
/// image counts from the first boundary that is not before its end or its first interval. ?3 is the class of stalls,
/// ?4 is the start of tracing, and 202 is `unmatched_frees`. If an image was forked after the start of tracing, its
/// unmatched frees count as inherited frees.
const COUNT: &str = "INSERT INTO temp.batch_count
    SELECT coalesce((SELECT id FROM temp.merge_interval AS boundary
                WHERE boundary.id >= image.interval AND boundary.end_ns >= image.end_ns ORDER BY boundary.id LIMIT 1),
            image.interval) AS counted,
        merged.target, class, image.end_kind, count(*),
        sum(max(image.end_ns - max(coalesce(image.start_ns, 0), ?4), 0)),
        sum(iif(image.start_kind = 'fork' AND image.start_ns >= ?4, frees, 0)),
        min(coalesce(image.start_ns, 0)), max(image.end_ns)
    FROM (SELECT image, class, sum(frees) AS frees FROM
            (SELECT part.image, total.class, 0 AS frees FROM temp.old_total AS part
                    JOIN total ON total.id = part.total WHERE part.image >= ?1 AND part.image < ?2
                UNION ALL SELECT image, class, iif(quantity = 202, value, 0) FROM temp.batch_value
                UNION ALL SELECT image, ?3, 0 FROM temp.batch_stall)
            GROUP BY image, class) AS listed
        JOIN temp.old_image AS merged ON merged.image = listed.image
        JOIN image ON image.id = listed.image
    GROUP BY counted, merged.target, class, image.end_kind";

/// Removes the rows of the images with IDs from ?1 to ?2 - 1 and of their monitored threads. The totals of the images
/// move to the groups, and lose the thread in their key.
const REMOVE: [&str; 8] = [
    "DELETE FROM process_interval WHERE interval IN (SELECT id FROM interval) AND image >= ?1 AND image < ?2
        AND +image IN (SELECT image FROM temp.old_image)",
    "DELETE FROM monitored_thread WHERE id IN (SELECT own.thread FROM temp.old_thread AS own
        JOIN temp.old_image AS merged ON merged.image = own.image WHERE own.image >= ?1 AND own.image < ?2)",
    "DELETE FROM image_change WHERE interval IN (SELECT id FROM interval) AND image >= ?1 AND image < ?2
        AND +image IN (SELECT image FROM temp.old_image)",
    "DELETE FROM stall_change WHERE interval IN (SELECT id FROM interval) AND image >= ?1 AND image < ?2
        AND +image IN (SELECT image FROM temp.old_image)",
    "UPDATE total SET image = merged.target, thread = NULL
        FROM temp.old_total AS own JOIN temp.old_image AS merged ON merged.image = own.image
        WHERE own.total = total.id AND own.image >= ?1 AND own.image < ?2",
    "DELETE FROM counter WHERE id IN (SELECT own.counter FROM temp.old_counter AS own
        JOIN temp.old_image AS merged ON merged.image = own.image WHERE own.image >= ?1 AND own.image < ?2)",
    "DELETE FROM thread WHERE image IN (SELECT image FROM temp.old_image WHERE image >= ?1 AND image < ?2)",
    "DELETE FROM image WHERE id IN (SELECT image FROM temp.old_image WHERE image >= ?1 AND image < ?2)",
];

/// Adds the numbers of images of a step to the groups, and empties the temporary tables.
const ADD: [&str; 5] = [
    "INSERT INTO merged_image SELECT * FROM temp.batch_count WHERE true ON CONFLICT DO UPDATE SET
        images = images + excluded.images, traced_ns = traced_ns + excluded.traced_ns,
        inherited_frees = inherited_frees + excluded.inherited_frees,
        first_start_ns = min(first_start_ns, excluded.first_start_ns),
        last_end_ns = max(last_end_ns, excluded.last_end_ns)",
    "DELETE FROM temp.batch_usage",
    "DELETE FROM temp.batch_value",
    "DELETE FROM temp.batch_stall",
    "DELETE FROM temp.batch_count",
];

/// Returns the statements that add the values and the stalls of the images of a step to the groups. Values that groups do
/// not have are left out.
fn add_values() -> [String; 2] {
    let (value, add) = (merged_value(), add_value());
    let left_out = list_image_values(|kind| !kind.is_of_groups());
    [
        format!(
            "INSERT INTO image_change
                SELECT interval, target, class, quantity, idx, {value} FROM temp.batch_value
                    JOIN temp.old_image AS merged ON merged.image = batch_value.image
                    WHERE quantity NOT IN ({left_out}) GROUP BY interval, target, class, quantity, idx
                ON CONFLICT DO UPDATE SET {add}"
        ),
        format!(
            "INSERT INTO stall_change
                SELECT interval, target, kind, cgroup_id, quantity, idx, {value} FROM temp.batch_stall
                    JOIN temp.old_image AS merged ON merged.image = batch_stall.image
                    WHERE true GROUP BY interval, target, kind, cgroup_id, quantity, idx
                ON CONFLICT DO UPDATE SET {add}"
        ),
    ]
}

/// Returns the statement that adds the usage of the images of a step to the groups.
fn add_usage() -> String {
    format!(
        "INSERT INTO process_interval
            SELECT interval, target, {USAGE}, ended_threads, started_threads, 0, source, 0 FROM temp.batch_usage
                JOIN temp.old_image AS merged ON merged.image = batch_usage.image WHERE true
            ON CONFLICT DO UPDATE SET {ADD_USAGE}, {ADD_THREADS}"
    )
}

/// A table with rows that refer to a counter or thread of an image instead of the image. The rows of the images to
/// merge are removed from this table before the images are merged.
struct OwnedRows {
    name: &'static str,
    /// Key column after `interval`. The table `temp.old_KEY` has a column of the same name, with the keys that belong
    /// to the images.
    key: &'static str,
}

const OWNED_ROWS: [OwnedRows; 2] =
    [OwnedRows { name: "sample", key: "counter" }, OwnedRows { name: "thread_interval", key: "thread" }];

/// A merge of images in progress. `temp.old_image` lists the images to merge, with their groups.
#[derive(Debug)]
pub(super) struct ImageMerge {
    /// IDs of the intervals that can have samples and threads of the images.
    intervals: Vec<i64>,
    /// Index in `intervals` of the interval in progress: its samples and thread rows are removed. After the last
    /// interval, the images are merged.
    interval: usize,
    /// Index in [`OWNED_ROWS`] of the table in progress.
    table: usize,
    /// ID of the first counter, thread or image of the next step.
    next: i64,
    /// Start of tracing, in nanoseconds since the start of the recording.
    trace_start: i64,
    /// Approximate number of rows that a step reads.
    rows: usize,
}

impl ImageMerge {
    /// Chooses images and their groups. Images with IDs in `unfinished` can have later changes and are not merged. New
    /// groups get the IDs after `last`. Returns the merge and the number of new groups; `None` if there are too few
    /// images.
    pub(super) fn start(
        connection: &mut Connection,
        intervals: Vec<i64>,
        unfinished: impl Iterator<Item = i64>,
        last: i64,
        max_pages: u64,
    ) -> Result<Option<(Self, i64)>> {
        let transaction = connection.transaction()?;
        if !choice::choose_images(&transaction, unfinished)? {
            return Ok(None);
        }
        let groups = choice::choose_groups(&transaction, last, max_pages)?;
        transaction.execute_batch(REMOVE_BATCH_TABLES)?;
        transaction.execute_batch(BATCH_TABLES)?;
        let trace_start = first_number(
            &transaction,
            "SELECT value FROM fact WHERE topic = 'run' AND item = 'start_ns' ORDER BY interval DESC LIMIT 1",
            [],
        )?;
        transaction.commit()?;
        let rows = rows_of_step(max_pages);
        let merge = Self { intervals, interval: 0, table: 0, next: 0, trace_start: trace_start.unwrap_or(0), rows };
        Ok(Some((merge, groups)))
    }

    /// Removes the temporary tables, which take space until then. Images that were not merged remain as they are,
    /// but their samples and the rows of their threads can be gone.
    pub(super) fn end(connection: &Connection) -> Result<()> {
        choice::remove_tables(connection)?;
        connection.execute_batch(REMOVE_BATCH_TABLES)
    }

    /// Merges some rows in one transaction. Returns false if nothing is left. Images with IDs in `unfinished` are not
    /// merged.
    pub(super) fn step(&mut self, connection: &mut Connection, unfinished: impl Iterator<Item = i64>) -> Result<bool> {
        let result = match self.intervals.get(self.interval) {
            Some(&interval) => self.remove_owned_rows(connection, interval, &OWNED_ROWS[self.table]),
            None => self.move_images(connection, unfinished),
        };
        match result {
            Ok(Some(end)) => self.next = end,
            Ok(None) if self.interval >= self.intervals.len() => return Ok(false),
            Ok(None) if self.table + 1 < OWNED_ROWS.len() => (self.table, self.next) = (self.table + 1, 0),
            Ok(None) => (self.interval, self.table, self.next) = (self.interval + 1, 0, 0),
            Err(error) if is_full(&error) && self.rows > MIN_ROWS => self.rows /= 2,
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Removes rows of the images from one table in one interval. Returns the first key of the next step; `None` if no
    /// row is left.
    fn remove_owned_rows(&self, connection: &mut Connection, interval: i64, table: &OwnedRows) -> Result<Option<i64>> {
        let OwnedRows { name, key } = table;
        let transaction = connection.transaction()?;
        let end = first_number(
            &transaction,
            &format!("SELECT {key} FROM {name} WHERE interval = ? AND {key} >= ? ORDER BY {key} LIMIT 1 OFFSET ?"),
            params![interval, self.next, self.rows.cast_signed()],
        )?;
        transaction
            .prepare_cached(&format!(
                "DELETE FROM {name} WHERE interval = ? AND {key} >= ? AND {key} < ?
                    AND +{key} IN (SELECT {key} FROM temp.old_{key})"
            ))?
            .execute(params![interval, self.next, end.unwrap_or(i64::MAX)])?;
        transaction.commit()?;
        Ok(end)
    }

    /// Returns the ID of the first image after this step; `None` if no image is left. A step has at least one image.
    fn end_of_step(&self, transaction: &Transaction<'_>) -> Result<Option<i64>> {
        let mut images = transaction.prepare_cached(
            "SELECT image, (SELECT count(*) FROM temp.old_total AS own WHERE own.image = old_image.image)
                + (SELECT count(*) FROM temp.old_counter AS own WHERE own.image = old_image.image)
                + (SELECT count(*) FROM temp.old_thread AS own WHERE own.image = old_image.image)
                FROM temp.old_image WHERE image >= ? ORDER BY image",
        )?;
        let mut images = images.query([self.next])?;
        let mut sum = 0;
        while let Some(row) = images.next()? {
            let rows = ROWS_OF_IMAGE + row.get::<_, isize>(1)?;
            if sum > 0 && sum + rows > self.rows.cast_signed() {
                return row.get(0).map(Some);
            }
            sum += rows;
        }
        Ok(None)
    }

    /// Merges some images. Returns the ID of the first image of the next step; `None` if no image is left.
    fn move_images(&self, connection: &mut Connection, unfinished: impl Iterator<Item = i64>) -> Result<Option<i64>> {
        let transaction = connection.transaction()?;
        let end = self.end_of_step(&transaction)?;
        let (from, until) = (self.next, end.unwrap_or(i64::MAX));
        let mut remain = transaction.prepare_cached("DELETE FROM temp.old_image WHERE image = ?")?;
        for image in unfinished.filter(|image| (from..until).contains(image)) {
            remain.execute([image])?;
        }
        drop(remain);
        let run = |sql: &str, parameters: &[i64]| -> Result<()> {
            transaction.prepare_cached(sql)?.execute(rusqlite::params_from_iter(parameters))?;
            Ok(())
        };
        run(READ_VALUES, &[from, until])?;
        run(READ_STALLS, &[from, until])?;
        run(READ_USAGE, &[from, until])?;
        run(COUNT, &[from, until, class_number(EventClass::Reclaim), self.trace_start])?;
        REMOVE.iter().try_for_each(|sql| run(sql, &[from, until]))?;
        run(&add_usage(), &[])?;
        add_values().iter().try_for_each(|sql| run(sql, &[]))?;
        ADD.iter().try_for_each(|sql| run(sql, &[]))?;
        transaction.commit()?;
        Ok(end)
    }
}

/// Starts to merge totals of groups that have equal keys. A merge of images leaves such totals, because it moves the
/// totals of several images to a group. Returns `None` if no totals have equal keys.
pub(super) fn start_total_merge(connection: &mut Connection, max_pages: u64) -> Result<Option<TotalMerge>> {
    let transaction = connection.transaction()?;
    TotalMerge::create_tables(&transaction)?;
    let equal = transaction.execute(
        &format!(
            "INSERT INTO temp.merged_total SELECT id, target FROM
                (SELECT id, min(id) OVER (PARTITION BY image, class, path, \"end\", {PART}) AS target FROM total
                    WHERE image IN (SELECT id FROM image WHERE pid = 0))
                WHERE id <> target"
        ),
        [],
    )?;
    transaction.commit()?;
    Ok((equal > 0).then(|| TotalMerge::new(TotalMergeKind::EqualStacks, max_pages)))
}
