//! Queries.

use rusqlite::{Connection, Row};

use crate::recording::error::Error;
use crate::recording::schema::PAGE_SIZE;

/// Minimum size of a row in a table with five columns: a header and a number, and the types of the columns.
const SMALLEST_ROW: i64 = 8;

/// Queries that fail if the file is damaged.
pub(super) trait Query {
    /// Calls `each` for every row of a query.
    fn each_row(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        each: impl FnMut(&Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Returns an empty list for the rows of a table, which are numbered from 1 on.
    fn list_of_rows<T>(&self, table: &str) -> Result<Vec<T>, Error>;
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
        let pages: i64 = self.pragma_query_value(None, "page_count", |row| row.get(0))?;
        // The numbers of a damaged file can be as large as any.
        let most = pages.saturating_mul(PAGE_SIZE.into()) / SMALLEST_ROW;
        Ok(Vec::with_capacity(usize::try_from(last.unwrap_or(0).min(most)).unwrap_or(0)))
    }
}
