//! Rows of the table `total`, which identify stacks.

use memtrace_model::{EventClass, ImageId, Pid, StackEnd};
use rusqlite::{Connection, Row};
use rustc_hash::FxHashMap;

use super::query::Query;
use crate::boundaries::Boundary;
use crate::file::error::Error;
use crate::file::schema::PART;
use crate::file::text::{nanoseconds, part_of};
use crate::interval::{PathNumber, TotalKey};

/// ID of each process image, by the number of its row in `image`.
pub(super) type ImageIds = FxHashMap<i64, ImageId>;

/// Rows of the table `total`, ordered by number.
#[derive(Debug)]
pub(super) struct TotalRows(Vec<TotalRow>);

#[derive(Debug)]
pub(super) struct TotalRow {
    number: i64,
    /// Key of the stack; `None` if its image, class, end or part is unknown. This is an error only if the row has
    /// values.
    key: Option<TotalKey>,
    /// True if the image runs at the boundary that was passed to [`TotalRows::read`].
    pub(super) is_running: bool,
}

impl TotalRow {
    /// Returns the key of the stack.
    ///
    /// # Errors
    ///
    /// The row is damaged.
    pub(super) fn key(&self) -> Result<TotalKey, Error> {
        self.key.ok_or_else(|| Error::Damaged(String::from("a stack has an impossible key")))
    }
}

impl TotalRows {
    /// Reads all rows. An image runs if it has not ended at the boundary `at`.
    pub(super) fn read(connection: &Connection, at: Boundary) -> Result<Self, Error> {
        let mut images: FxHashMap<i64, (ImageId, bool)> = FxHashMap::default();
        connection.each_row("SELECT id, pid, ordinal, end_ns FROM image", [], |row| {
            let id = ImageId { pid: Pid(row.get(1)?), ordinal: row.get(2)? };
            let end: Option<i64> = row.get(3)?;
            // Groups have ended members only.
            let is_running = !id.stands_for_group() && end.is_none_or(|end| end > nanoseconds(at.at));
            images.insert(row.get(0)?, (id, is_running));
            Ok(())
        })?;
        let classes = named(connection, "event_class", EventClass::ALL, EventClass::name)?;
        let ends = named(connection, "stack_end", StackEnd::ALL, StackEnd::name)?;
        let mut rows = connection.list_of_rows("total")?;
        let sql = format!("SELECT id, image, class, path, \"end\", {PART} FROM total ORDER BY id");
        connection.each_row(&sql, [], |row| {
            let image = row.get(1).ok().and_then(|image: i64| images.get(&image).copied());
            let key = || key_of(row, image?.0, *classes.get(&row.get(2).ok()?)?, *ends.get(&row.get(4).ok()?)?);
            let is_running = image.is_some_and(|(_, is_running)| is_running);
            rows.push(TotalRow { number: row.get(0)?, key: key(), is_running });
            Ok(())
        })?;
        Ok(Self(rows))
    }

    pub(super) fn all(&self) -> &[TotalRow] {
        &self.0
    }

    /// Returns the list index of the row with this number, if the row exists. `next` is the most probable index,
    /// because the changes of an interval are in the order of their totals.
    pub(super) fn position(&self, number: i64, next: usize) -> Option<usize> {
        let is_next = self.0.get(next).is_some_and(|row| row.number == number);
        if is_next { Some(next) } else { self.0.binary_search_by_key(&number, |row| row.number).ok() }
    }
}

fn key_of(row: &Row<'_>, image: ImageId, class: EventClass, end: StackEnd) -> Option<TotalKey> {
    Some(TotalKey { image, class, path: PathNumber(row.get(3).ok()?), end, part: part_of(row, 5)? })
}

/// Reads a table of IDs and names. Returns the value with each name, by ID. Unknown names are left out.
pub(super) fn named<V: Copy>(
    connection: &Connection,
    table: &str,
    values: &[V],
    name_of: impl Fn(V) -> &'static str,
) -> Result<FxHashMap<i64, V>, Error> {
    let mut numbers = FxHashMap::default();
    connection.each_row(&format!("SELECT id, name FROM {table}"), [], |row| {
        let name: String = row.get(1)?;
        let value = values.iter().copied().find(|&value| name_of(value) == name);
        numbers.extend(value.map(|value| Ok::<_, Error>((row.get(0)?, value))).transpose()?);
        Ok(())
    })?;
    Ok(numbers)
}
