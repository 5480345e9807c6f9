//! Options of the table.

use memtrace_model::ThreadColumn;

/// Options of the tables of processes and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTableOptions {
    /// Sort column of threads and processes.
    pub sort: ThreadColumn,
    /// Maximum number of rows of threads.
    pub rows: usize,
    /// Maximum width of lines in columns of a terminal; `None` for no limit. If a table is too wide, its least important
    /// columns are left out, and a line names them.
    pub width: Option<usize>,
}
