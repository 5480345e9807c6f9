//! Size of the steps of a merge.

use rusqlite::{Connection, Error, ErrorCode, Params, Result};

/// Approximate maximum number of rows that a step reads.
const MAX_ROWS: usize = 20_000;

/// Minimum number of rows of a step. Steps become smaller if the file has no room for their results.
pub(super) const MIN_ROWS: usize = 64;

/// Returns the approximate number of rows that a step reads. `max_pages`: size limit of the file. It limits the steps
/// too, because a step uses some pages before it frees more.
pub(super) fn rows_of_step(max_pages: u64) -> usize {
    usize::try_from(max_pages * 2).unwrap_or(MAX_ROWS).min(MAX_ROWS)
}

/// Returns true if the file has no room for the results of a step.
pub(super) fn is_full(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Returns the number in the first row of a query; `None` if there is no row.
pub(super) fn first_number(connection: &Connection, sql: &str, parameters: impl Params) -> Result<Option<i64>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    rows.next()?.map(|row| row.get(0)).transpose()
}
