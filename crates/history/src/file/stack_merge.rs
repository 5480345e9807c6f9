//! Choice of the stacks to merge, if merging old intervals frees too little space.
//!
//! The smaller half of all stacks becomes one stack for each image, event class and part, with the end `merged`.
//! The sums of each image at each boundary stay exact.

use memtrace_model::{EventClass, Magnitude, Magnitudes, PartKey, StackEnd, Storage};
use rusqlite::{Connection, Error, Result, Transaction};

use super::quantities::{detail_number, end_number};
use super::schema::PART;
use super::total_merge::{TotalMerge, TotalMergeKind};
use super::wrapping::wrapping_sum;
use crate::merge_smallest::{FEWEST, Smallest};

/// Starts to merge stacks. The new rows of `total` get the numbers after `last`. `first`: ID of the interval that
/// counts the merged stacks. Returns the merge and the number of new rows; `None` if there are too few stacks.
pub(super) fn start(
    connection: &mut Connection,
    first: i64,
    last: i64,
    max_pages: u64,
) -> Result<Option<(TotalMerge, i64)>> {
    let transaction = connection.transaction()?;
    let stacks: i64 = transaction.query_one("SELECT count(*) FROM total WHERE path <> 0", [], |row| row.get(0))?;
    let half = usize::try_from(stacks / 2).unwrap_or_default();
    if half < FEWEST {
        return Ok(None);
    }
    TotalMerge::create_tables(&transaction)?;
    transaction.execute_batch(&format!(
        "DROP TABLE IF EXISTS temp.merged_stack;
        CREATE TEMP TABLE merged_stack (id INTEGER PRIMARY KEY, image, class, {PART});
        CREATE INDEX temp.merged_stack_key ON merged_stack (image, class);"
    ))?;
    choose(&transaction)?;
    let end = end_number(StackEnd::Merged);
    // Earlier merged stacks of the same images are merged too, so that one remains for each image, class and part.
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

/// Adds the smaller half of the stacks to `temp.merged_total`.
fn choose(transaction: &Transaction<'_>) -> Result<()> {
    create_magnitudes(transaction)?;
    let mut all = Magnitudes::default();
    let each_magnitude = |each: &mut dyn FnMut(i64, EventClass, Magnitude) -> Result<()>| {
        let mut statement = transaction.prepare("SELECT * FROM temp.stack_magnitude ORDER BY total")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let class = usize::try_from(row.get::<_, i64>(1)?).ok().and_then(|number| EventClass::ALL.get(number));
            let Some(&class) = class else { continue };
            let mut numbers = [0; Magnitude::COUNT];
            for (index, number) in (2..).zip(&mut numbers) {
                *number = row.get::<_, i64>(index)?.cast_unsigned();
            }
            each(row.get(0)?, class, Magnitude::new(numbers))?;
        }
        Ok::<_, Error>(())
    };
    each_magnitude(&mut |_, class, magnitude| {
        all.add(class, magnitude);
        Ok(())
    })?;
    let mut smallest = Smallest::new(all);
    each_magnitude(&mut |_, class, magnitude| {
        smallest.count(class, magnitude);
        Ok(())
    })?;
    let half = smallest.counted() / 2;
    let mut chosen = smallest.choose(half);
    let mut insert = transaction.prepare("INSERT INTO temp.merged_total VALUES (?, NULL)")?;
    each_magnitude(&mut |total, class, magnitude| {
        if chosen.includes_next(class, magnitude) {
            insert.execute([total])?;
        }
        Ok(())
    })?;
    transaction.execute_batch("DROP TABLE temp.stack_magnitude")
}

/// Creates `temp.stack_magnitude`: one row for each stack, with the quantities that order the stacks.
fn create_magnitudes(transaction: &Transaction<'_>) -> Result<()> {
    let quantities = [EventClass::Heap, EventClass::Reclaim].map(Magnitude::quantities);
    // Depending on the event class, the quantity with this index is a column of `change` or a row of `detail`.
    let number = |index: usize, in_details: bool| {
        let mut all = quantities.iter().filter_map(|quantities| quantities.get(index));
        let found = all.find(|quantity| (quantity.facts().storage == Storage::Column) != in_details);
        match found {
            Some(quantity) if in_details => format!("iif(quantity = {}, value, 0)", detail_number(*quantity)),
            Some(quantity) => String::from(quantity.facts().column),
            None => String::from("0"),
        }
    };
    let list = |item: &dyn Fn(usize) -> String| (0..Magnitude::COUNT).map(item).collect::<Vec<_>>().join(", ");
    let names = list(&|index| format!("n{index}"));
    let sums = list(&|index| wrapping_sum(&format!("n{index}")));
    let in_columns = list(&|index| format!("{} AS n{index}", number(index, false)));
    let in_details = list(&|index| number(index, true));
    let all = quantities.iter().flat_map(|quantities| quantities.iter());
    let details = all.filter(|quantity| matches!(quantity.facts().storage, Storage::Detail(_)));
    let details = details.map(|quantity| detail_number(*quantity).to_string()).collect::<Vec<_>>().join(", ");
    transaction.execute_batch(&format!(
        "DROP TABLE IF EXISTS temp.stack_magnitude;
        CREATE TEMP TABLE stack_magnitude (total INTEGER PRIMARY KEY, class INTEGER, {names});
        INSERT INTO temp.stack_magnitude SELECT id, class, {sums} FROM
                (SELECT total AS changed, {in_columns} FROM change
                    UNION ALL SELECT total, {in_details} FROM detail WHERE quantity IN ({details}))
                JOIN total ON total.id = changed WHERE path <> 0 GROUP BY id"
    ))
}
