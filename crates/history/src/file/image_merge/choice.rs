//! Choice of the images that are merged, and of their groups.

use rusqlite::{Connection, Result, Transaction};

use crate::file::wrapping::{wrapping_add, wrapping_sum};
use crate::merge_smallest::{FEWEST, ImageSizes, small_images};

/// Maximum number of groups. If more are needed, images share coarser groups. The group `other programs` can exceed
/// the maximum.
const MAX_GROUPS: u64 = 4096;

/// Minimum number of pages that the size limit must have for each group. A group takes about 150 bytes, so all groups
/// fit into the pages that are reserved for merges.
const PAGES_PER_GROUP: u64 = 4;

/// First ordinal of groups that the merge creates. Groups of the recorder have lower ordinals.
const FIRST_ORDINAL: i64 = 1 << 31;

const REMOVE_TABLES: &str = "
    DROP TABLE IF EXISTS temp.unfinished_image;
    DROP TABLE IF EXISTS temp.image_size;
    DROP TABLE IF EXISTS temp.old_image;
    DROP TABLE IF EXISTS temp.old_total;
    DROP TABLE IF EXISTS temp.old_counter;
    DROP TABLE IF EXISTS temp.old_thread;
    DROP TABLE IF EXISTS temp.merge_interval;
    DROP TABLE IF EXISTS temp.image_group;
    DROP TABLE IF EXISTS temp.new_group;";

const TABLES: &str = "
    CREATE TEMP TABLE unfinished_image (image INTEGER PRIMARY KEY);
    CREATE TEMP TABLE image_size (
        image INTEGER PRIMARY KEY, is_killed INTEGER, exit_bytes INTEGER, alloc_bytes INTEGER, stall_ns INTEGER);
    CREATE TEMP TABLE old_image (image INTEGER PRIMARY KEY, target INTEGER, key TEXT);
    CREATE TEMP TABLE old_total (image INTEGER, total INTEGER, PRIMARY KEY (image, total)) WITHOUT ROWID;
    CREATE TEMP TABLE old_counter (image INTEGER, counter INTEGER, PRIMARY KEY (image, counter)) WITHOUT ROWID;
    CREATE INDEX temp.old_counter_number ON old_counter (counter);
    CREATE TEMP TABLE old_thread (image INTEGER, thread INTEGER, PRIMARY KEY (image, thread)) WITHOUT ROWID;
    CREATE INDEX temp.old_thread_number ON old_thread (thread);
    CREATE TEMP TABLE merge_interval (id INTEGER PRIMARY KEY, end_ns INTEGER);
    CREATE TEMP TABLE image_group (key TEXT PRIMARY KEY, image INTEGER) WITHOUT ROWID;
    CREATE TEMP TABLE new_group (id INTEGER PRIMARY KEY, key TEXT, member INTEGER);";

/// SQL for the images that have ended and have no later changes.
const ENDED: &str =
    "FROM image WHERE pid <> 0 AND end_ns IS NOT NULL AND id NOT IN (SELECT image FROM temp.unfinished_image)";

/// Removes the temporary tables.
pub(super) fn remove_tables(connection: &Connection) -> Result<()> {
    connection.execute_batch(REMOVE_TABLES)
}

/// Returns the statements that set the sizes of the images in `temp.image_size`, by one scan of each table of changes.
/// CROSS JOIN and the unary + keep SQLite from looking up the changes of each image. 301 is `stalled_ns`.
fn set_sizes() -> String {
    let [held, allocated, stalled] = ["exit_bytes", "alloc_bytes", "value"].map(wrapping_sum);
    let all_allocated = wrapping_add("alloc_bytes", "allocated");
    format!(
        "UPDATE temp.image_size SET exit_bytes = held, alloc_bytes = allocated FROM
            (SELECT total.image AS owner, {held} AS held, {allocated} AS allocated
                FROM change CROSS JOIN total ON total.id = change.total
                WHERE +total.image IN (SELECT image FROM temp.image_size) GROUP BY total.image)
            WHERE owner = image;
        UPDATE temp.image_size SET alloc_bytes = {all_allocated} FROM
            (SELECT image AS owner, {allocated} AS allocated FROM process_interval
                WHERE +image IN (SELECT image FROM temp.image_size) GROUP BY image)
            WHERE owner = image;
        UPDATE temp.image_size SET stall_ns = stalled FROM
            (SELECT image AS owner, {stalled} AS stalled FROM stall_change
                WHERE quantity = 301 AND +image IN (SELECT image FROM temp.image_size) GROUP BY image)
            WHERE owner = image;"
    )
}

/// Fills `temp.old_image` with the older half of the ended images, except for the largest by each measure. Images
/// that the OOM killer ended count as the largest. Returns false if there are too few images.
pub(super) fn choose_images(transaction: &Transaction<'_>, unfinished: impl Iterator<Item = i64>) -> Result<bool> {
    remove_tables(transaction)?;
    transaction.execute_batch(TABLES)?;
    let mut row = transaction.prepare("INSERT OR IGNORE INTO temp.unfinished_image VALUES (?)")?;
    for image in unfinished {
        row.execute([image])?;
    }
    drop(row);
    let ended: i64 = transaction.query_one(&format!("SELECT count(*) {ENDED}"), [], |row| row.get(0))?;
    let older = ended / 2;
    if usize::try_from(older).unwrap_or_default() < FEWEST {
        return Ok(false);
    }
    transaction.execute(
        &format!(
            "INSERT INTO temp.image_size SELECT id, end_kind = 'oom_kill', 0, 0, 0 {ENDED} ORDER BY end_ns, id LIMIT ?"
        ),
        [older],
    )?;
    transaction.execute_batch(&set_sizes())?;
    let mut insert = transaction.prepare("INSERT INTO temp.old_image VALUES (?, NULL, NULL)")?;
    for image in small_images(&sizes(transaction)?) {
        insert.execute([image])?;
    }
    drop(insert);
    transaction.execute_batch(
        "INSERT INTO temp.old_total SELECT image, id FROM total WHERE image IN (SELECT image FROM temp.old_image);
        INSERT INTO temp.old_counter SELECT image, id FROM counter
            WHERE image IN (SELECT image FROM temp.old_image);
        INSERT INTO temp.old_thread SELECT image, id FROM monitored_thread
            WHERE image IN (SELECT image FROM temp.old_image);
        INSERT INTO temp.merge_interval SELECT id, end_ns FROM interval;
        DROP TABLE temp.image_size;",
    )?;
    Ok(true)
}

/// Returns the images in `temp.image_size` with their sizes.
fn sizes(transaction: &Transaction<'_>) -> Result<Vec<(i64, ImageSizes)>> {
    let mut statement =
        transaction.prepare("SELECT image, exit_bytes, alloc_bytes, stall_ns, is_killed FROM temp.image_size")?;
    let rows = statement.query_map([], |row| {
        let size = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
        Ok((row.get(0)?, ImageSizes { exit: size(1)?, alloc: size(2)?, stalls: size(3)?, is_killed: row.get(4)? }))
    })?;
    rows.collect()
}

/// Keys of groups, the finest first: an expression for the key of an image, and expressions for the columns `comm`,
/// `exe`, `uid`, `user` and `cgroup` of a new group. As in reports, the cgroup is left out first.
const KEYS: [(&str, &str); 3] = [
    (
        "quote(exe) || ' ' || quote(iif(exe IS NULL, comm, NULL)) || ' ' || quote(uid) || ' ' || quote(cgroup)",
        // [`SET_NAMES`] sets the name of a group with an executable.
        "iif(exe IS NULL, comm, NULL), exe, uid, user, cgroup",
    ),
    (
        "quote(exe) || ' ' || quote(iif(exe IS NULL, comm, NULL)) || ' ' || quote(uid) || ' NULL'",
        "iif(exe IS NULL, comm, NULL), exe, uid, user, NULL",
    ),
    ("'NULL ''other programs'' NULL NULL'", "'other programs', NULL, NULL, NULL, NULL"),
];

/// Sets the name of each group with an executable to the name that more than half of its members have. Without a
/// majority, the group has no name, and reports show the name of the executable. The same rule applies to groups of
/// unmerged processes. Members of earlier merges count with the name of the group.
const SET_NAMES: &str = "
    WITH earlier AS (SELECT image AS target, max(images) AS images FROM
            (SELECT image, sum(images) AS images FROM merged_image GROUP BY image, class) GROUP BY image),
        named AS (SELECT target, comm, count(*) AS images FROM temp.old_image AS merged
                JOIN image ON image.id = merged.image GROUP BY target, comm
            UNION ALL SELECT target, comm, images FROM earlier JOIN image ON image.id = target),
        sums AS (SELECT target, comm, sum(images) AS images FROM named GROUP BY target, comm),
        -- The name of the row with the most images (sqlite.org/lang_select.html, bare columns).
        most AS (SELECT target, comm, max(images) AS images, sum(images) AS all_images FROM sums GROUP BY target)
    UPDATE image SET comm = iif(2 * most.images > most.all_images, most.comm, NULL)
        FROM most WHERE most.target = image.id AND image.exe IS NOT NULL";

/// Sets the groups of the images in `temp.old_image`. If the recorder has not chosen a group, an image gets the group
/// of its executable, user and cgroup. New groups get the IDs after `last`. Returns the number of new groups.
pub(super) fn choose_groups(transaction: &Transaction<'_>, last: i64, max_pages: u64) -> Result<i64> {
    transaction.execute(
        "UPDATE temp.old_image SET target = (SELECT member_of FROM image WHERE image.id = old_image.image)",
        [],
    )?;
    let (finest, _) = KEYS[0];
    transaction.execute(
        &format!("INSERT INTO temp.image_group SELECT {finest} AS key, min(id) FROM image WHERE pid = 0 GROUP BY key"),
        [],
    )?;
    let groups: i64 = transaction.query_one("SELECT count(*) FROM temp.image_group", [], |row| row.get(0))?;
    let most = MAX_GROUPS.min(max_pages / PAGES_PER_GROUP).cast_signed();
    let mut created = 0;
    for (index, (key, columns)) in KEYS.iter().enumerate() {
        transaction.execute(
            &format!(
                "UPDATE temp.old_image SET key = (SELECT {key} FROM image WHERE image.id = old_image.image)
                    WHERE target IS NULL"
            ),
            [],
        )?;
        set_targets(transaction)?;
        let sql = "SELECT count(DISTINCT key) FROM temp.old_image WHERE target IS NULL";
        let new: i64 = transaction.query_one(sql, [], |row| row.get(0))?;
        if new > 0 && (groups + new <= most || index + 1 == KEYS.len()) {
            create_groups(transaction, last, columns)?;
            set_targets(transaction)?;
            created = new;
            break;
        }
    }
    transaction.execute(SET_NAMES, [])?;
    // Reports list a group from the first interval of its members on.
    transaction.execute(
        "UPDATE image SET interval = min(interval, first) FROM
            (SELECT merged.target, min(member.interval) AS first FROM temp.old_image AS merged
                JOIN image AS member ON member.id = merged.image GROUP BY merged.target)
            WHERE image.id = target",
        [],
    )?;
    Ok(created)
}

/// Sets the group of each image without one, if a group with its key exists.
fn set_targets(transaction: &Transaction<'_>) -> Result<()> {
    transaction.execute(
        "UPDATE temp.old_image SET target =
            (SELECT image_group.image FROM temp.image_group WHERE image_group.key = old_image.key)
            WHERE target IS NULL",
        [],
    )?;
    Ok(())
}

fn create_groups(transaction: &Transaction<'_>, last: i64, columns: &str) -> Result<()> {
    transaction.execute(
        "INSERT INTO temp.new_group
            SELECT ? + row_number() OVER (), key, min(image) FROM temp.old_image WHERE target IS NULL GROUP BY key",
        [last],
    )?;
    transaction.execute(
        &format!(
            "INSERT INTO image (id, interval, pid, ordinal, comm, exe, uid, user, cgroup)
                SELECT new.id, interval, 0, ? + new.id, {columns} FROM
                    temp.new_group AS new JOIN image AS example ON example.id = new.member"
        ),
        [FIRST_ORDINAL],
    )?;
    transaction.execute("INSERT INTO temp.image_group SELECT key, id FROM temp.new_group", [])?;
    Ok(())
}
