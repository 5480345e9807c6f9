//! Size of the steps in which rows are merged.

use rusqlite::{Connection, Error, ErrorCode, Params, Result};

/// Most rows that a step reads, about.
const MAX_ROWS: usize = 20_000;

/// Fewest rows to which a step is reduced if the file has no room for its results.
pub(super) const MIN_ROWS: usize = 64;

/// Returns the number of rows that a step reads, about. Steps are small compared with `max_pages`, the size of the file: they
/// need some space before they free more.
pub(super) fn rows_of_step(max_pages: u64) -> usize {
    usize::try_from(max_pages * 2).unwrap_or(MAX_ROWS).min(MAX_ROWS)
}

/// Returns true if the file has no room for the results of a step.
pub(super) fn is_full(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Returns the number in the first row of a query.
pub(super) fn first_number(connection: &Connection, sql: &str, parameters: impl Params) -> Result<Option<i64>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    rows.next()?.map(|row| row.get(0)).transpose()
}
