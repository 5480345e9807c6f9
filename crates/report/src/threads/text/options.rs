//! Options of the table.

use memtrace_model::ThreadColumn;

/// Options of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTableOptions {
    /// Column by which threads and processes are sorted.
    pub sort: ThreadColumn,
    /// Maximum number of threads.
    pub rows: usize,
    /// Maximum width of lines. The least important columns are removed to fit.
    pub width: Option<usize>,
}
