//! Observer of a run, which displays its messages.

use std::path::Path;
use std::time::Duration;

use memtrace_model::Bytes;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Progress {
    /// Time since all probes were in place.
    pub(crate) elapsed: Duration,
    /// Bytes allocated since then and not freed, in all targets.
    pub(crate) live: Bytes,
    /// Number of events since then.
    pub(crate) events: u64,
    /// Rate of events since the last progress.
    pub(crate) events_per_second: f64,
    /// Number of losses since then, of any reason.
    pub(crate) lost: u64,
}

/// Room for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSize {
    /// Width of a line, in characters.
    pub(crate) columns: usize,
    pub(crate) lines: usize,
}

/// Receives messages of a run.
pub(crate) trait Observer {
    /// All probes are in place. `description` continues the word "attached": `to pid 4711 (redis-server), 12 probes`.
    fn attached(&mut self, description: &str);

    /// Called a few times a second at most.
    fn progress(&mut self, progress: &Progress);

    /// The debug file of `object`, which is number `number` of `total`, is being downloaded. Called a few times a second
    /// at most. A signal stops the download.
    fn downloading(&mut self, object: &Path, number: usize, total: usize, received: Bytes, size: Option<Bytes>);

    /// The report is written, and `removed` of `total` probes are removed. Called a few times a second at most, and
    /// only if the removal takes longer than a moment. A second signal stops the wait.
    fn detaching(&mut self, removed: usize, total: usize);

    /// Returns the room for a table; `None` if it is not limited.
    fn table_size(&self) -> Option<TableSize>;

    /// Table of several lines that replaces the previous one, if the display can do so.
    fn table(&mut self, text: &str);

    /// Erases the table, before other text is written to the same terminal.
    fn erase_table(&mut self);

    /// Message of one line: `wrote memtrace.svg`.
    fn note(&mut self, text: &str);

    /// Summary of several lines at the end of the run.
    fn summary(&mut self, text: &str);
}
