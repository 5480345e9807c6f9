//! Queries of the reader.

use rusqlite::{Connection, Row};

use crate::file::error::Error;

/// Maximum capacity that [`Query::list_of_rows`] reserves. The highest ID can be far above the number of rows: merges
/// leave gaps, and a damaged file can contain any ID.
const MOST_EXPECTED: i64 = 1 << 20;

/// Queries that return an error if the file is damaged.
pub(super) trait Query {
    /// Calls `each` for every row of a query.
    fn each_row(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        each: impl FnMut(&Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Returns an empty list with capacity for the rows of a table. The capacity is estimated from the highest `id`.
    fn list_of_rows<T>(&self, table: &str) -> Result<Vec<T>, Error>;

    /// Returns true if a query returns at least one row.
    fn has_rows(&self, sql: &str) -> Result<bool, Error>;

    /// Returns true if the recording has a table. Older recordings lack some tables.
    fn has_table(&self, name: &str) -> Result<bool, Error>;
}

impl Query for Connection {
    fn each_row(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        mut each: impl FnMut(&Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut statement = self.prepare_cached(sql)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            each(row)?;
        }
        Ok(())
    }

    fn list_of_rows<T>(&self, table: &str) -> Result<Vec<T>, Error> {
        let last: Option<i64> = self.query_row(&format!("SELECT max(id) FROM {table}"), [], |row| row.get(0))?;
        Ok(Vec::with_capacity(usize::try_from(last.unwrap_or(0).min(MOST_EXPECTED)).unwrap_or(0)))
    }

    fn has_rows(&self, sql: &str) -> Result<bool, Error> {
        Ok(self.prepare_cached(sql)?.exists([])?)
    }

    fn has_table(&self, name: &str) -> Result<bool, Error> {
        Ok(self.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?")?.exists([name])?)
    }
}
