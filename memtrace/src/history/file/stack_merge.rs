//! Choice of the stacks that are merged, if the merging of old intervals makes too little room.
//!
//! The smaller half of all stacks becomes one stack for each image, event class and part, with the end `merged`. The sums of
//! each image at each boundary stay exact.

use rusqlite::{Connection, Result};

use super::quantities::end_number;
use super::schema::PART;
use super::total_merge::{TotalMerge, TotalMergeKind};
use crate::model::{PartKey, StackEnd};

/// Fewest stacks that are merged.
const MIN_STACKS: i64 = 16;

/// Starts to merge stacks: those with the fewest live bytes, and of these with the fewest allocated bytes. Rows of merged
/// stacks get numbers after `last`; `first` is the first interval. Returns the merge and the number of these rows; `None` if
/// there are too few stacks.
pub(super) fn start(
    connection: &mut Connection,
    first: i64,
    last: i64,
    max_pages: u64,
) -> Result<Option<(TotalMerge, i64)>> {
    let transaction = connection.transaction()?;
    let stacks: i64 = transaction.query_one("SELECT count(*) FROM total WHERE path <> 0", [], |row| row.get(0))?;
    if stacks / 2 < MIN_STACKS {
        return Ok(None);
    }
    TotalMerge::create_tables(&transaction)?;
    transaction.execute_batch(&format!(
        "DROP TABLE IF EXISTS temp.merged_stack;
        CREATE TEMP TABLE merged_stack (id INTEGER PRIMARY KEY, image, class, {PART});
        CREATE INDEX temp.merged_stack_key ON merged_stack (image, class);"
    ))?;
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
        "INSERT OR IGNORE INTO temp.merged_total SELECT id, NULL FROM total WHERE path = 0 AND \"end\" = ?
            AND image IN (SELECT image FROM total WHERE id IN (SELECT total FROM temp.merged_total))",
        [end],
    )?;
    let targets = transaction.execute(
        &format!(
            "INSERT INTO temp.merged_stack SELECT ? + row_number() OVER (), image, class, {PART} FROM
                (SELECT DISTINCT image, class, {PART} FROM temp.merged_total
                    JOIN total ON total.id = merged_total.total)"
        ),
        [last],
    )?;
    transaction.execute(
        &format!(
            "UPDATE temp.merged_total SET target = (SELECT stack.id FROM total JOIN temp.merged_stack AS stack
                ON stack.image = total.image AND stack.class = total.class AND {}
                WHERE total.id = merged_total.total)",
            PartKey::ALL.map(|PartKey { name, .. }| format!("stack.{name} IS total.{name}")).join(" AND ")
        ),
        [],
    )?;
    transaction
        .execute(&format!("INSERT INTO total SELECT id, image, class, 0, ?, {PART} FROM temp.merged_stack"), [end])?;
    transaction.commit()?;
    let merge = TotalMerge::new(TotalMergeKind::Stacks { counted_in: first }, max_pages);
    Ok(Some((merge, i64::try_from(targets).unwrap_or(i64::MAX))))
}
