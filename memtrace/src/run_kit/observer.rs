//! Observer that shows the messages of a run.

use std::path::Path;
use std::time::Duration;

use memtrace_model::Bytes;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Progress {
    /// Time since all probes were in place.
    pub(crate) elapsed: Duration,
    /// Time until the end of the run; `None` without a duration.
    pub(crate) left: Option<Duration>,
    /// Live bytes of all targets: allocated since all probes were in place, and not freed.
    pub(crate) live: Bytes,
    /// Number of events since all probes were in place.
    pub(crate) events: u64,
    /// Number of events per second since the last progress.
    pub(crate) events_per_second: f64,
    /// Number of losses since all probes were in place, for any reason.
    pub(crate) lost: u64,
}

/// Size of a terminal, or of the space for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSize {
    /// Width of a line, in columns of a terminal.
    pub(crate) columns: usize,
    pub(crate) lines: usize,
}

/// Display of a step before a trace begins. A thread of its own calls it.
pub(crate) trait StepDisplay: Send {
    /// Shows a step that takes long, such as `building unwind tables, 12 of 40`. `is_new` is false if the step was shown before
    /// with other numbers.
    fn show(&mut self, text: &str, is_new: bool);

    /// Erases the step, because it has ended.
    fn clear(&mut self);
}

/// Receiver of the messages of a run.
pub(crate) trait Observer {
    /// Returns the display of the steps before the trace begins; `None` if they are not shown.
    fn step_display(&self) -> Option<Box<dyn StepDisplay>>;

    /// Called when all probes are in place. `description` continues the word "attached": `to pid 4711 (redis-server),
    /// 12 probes`.
    fn attached(&mut self, description: &str);

    /// Called with the progress, a few times a second at most.
    fn progress(&mut self, progress: &Progress);

    /// Called during the download of a debug file for `object`, a few times a second at most. `number`: position of the
    /// object among `total` objects. `received`, `size`: bytes of the file. A signal stops the download.
    fn downloading(&mut self, object: &Path, number: usize, total: usize, received: Bytes, size: Option<Bytes>);

    /// Called after the report is written, while `removed` of `total` probes are removed. Called a few times a second
    /// at most, and only if the removal takes long. A second signal stops the wait.
    fn detaching(&mut self, removed: usize, total: usize);

    /// Returns the space for a table; `None` if it is not limited.
    fn table_size(&self) -> Option<TableSize>;

    /// Returns the width of lines on standard output, in columns of a terminal; `None` if it is not limited, because
    /// standard output is no terminal.
    fn output_columns(&self) -> Option<usize>;

    /// Returns the size of the terminal that shows the summary; `None` if the summary goes to a file or a pipe.
    fn summary_size(&self) -> Option<TableSize>;

    /// Shows a table of several lines. It replaces the previous table if the display can do so.
    fn table(&mut self, text: &str);

    /// Erases the table. Called before other text is written to the same terminal.
    fn erase_table(&mut self);

    /// Shows a message of one line: `wrote memtrace.svg`.
    fn note(&mut self, text: &str);

    /// Shows a message of one line that the user has asked for, as by `--when`. A quiet display shows it too.
    fn alert(&mut self, text: &str);

    /// Shows a summary of several lines at the end of the run.
    fn summary(&mut self, text: &str);
}
