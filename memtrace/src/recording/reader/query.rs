//! Queries.

use rusqlite::{Connection, Row};

use crate::recording::error::Error;

/// Queries that fail if the file is damaged.
pub(super) trait Query {
    /// Calls `each` for every row of a query.
    fn each_row(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        each: impl FnMut(&Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error>;
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
}
