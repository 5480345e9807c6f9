//! The history of a run: in the file of a recording, or in memory.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use memtrace_history::{
    Book, Error as HistoryError, Header, Interval, MemoryBook, Recording, Settings, Status, Writer,
};
use memtrace_model::EventClass;

use crate::run_kit::clock::wall_time_of_start;
use crate::run_kit::error::Error;
use crate::run_kit::recording_file;
use crate::trace::config::Config;
use crate::trace::memory::RecorderLimits;

/// The history of a run in progress.
pub(super) enum RunBook {
    File { path: PathBuf, writer: Writer },
    Memory { book: Box<MemoryBook>, end: Duration },
}

impl RunBook {
    /// Creates the history. `clock_start`: origin of ticks.
    pub(super) fn create(
        config: &Config,
        interval: Duration,
        limits: &RecorderLimits,
        clock_start: Instant,
    ) -> Result<Self, Error> {
        let header = header_of_run(config, interval, wall_time_of_start(|| clock_start.elapsed()));
        let Some(recording) = &config.recording else {
            return Ok(Self::Memory { book: Box::new(MemoryBook::new(header, limits.book)), end: Duration::ZERO });
        };
        let &RecorderLimits { queued_rows, known_totals, .. } = limits;
        let settings = Settings { queued_rows, known_totals, ..Settings::default() };
        let writer = recording_file::create(recording, &header, settings)?;
        Ok(Self::File { path: recording.path.clone(), writer })
    }

    /// Appends the next interval.
    pub(super) fn push(&mut self, interval: Interval) {
        match self {
            Self::File { writer, .. } => writer.push(interval),
            Self::Memory { book, end } => {
                *end = interval.span.end;
                book.append(interval);
            }
        }
    }

    /// Returns true if the history is in a file.
    pub(super) const fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Returns the status of the storage.
    pub(super) fn status(&self) -> Status {
        match self {
            Self::File { writer, .. } => writer.status(),
            Self::Memory { end, .. } => Status { stored_until: *end, ..Status::default() },
        }
    }

    /// Returns the result of `read` on the history so far; `None` if the last intervals could not be stored.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&dyn Book) -> Result<T, HistoryError>,
    ) -> Result<Option<T>, HistoryError> {
        match self {
            Self::Memory { book, .. } => read(&**book).map(Some),
            Self::File { writer, .. } if writer.settle().open_gap.is_some() => Ok(None),
            Self::File { path, .. } => read(&Recording::open_while_written(path)?).map(Some),
        }
    }

    /// Returns the history so far, to view it; `None` if it cannot be read. `recording`: place for an opened recording,
    /// which is used if the history is in a file.
    pub(super) fn view<'a>(&'a mut self, recording: &'a mut Option<Recording>) -> Option<&'a mut dyn Book> {
        match self {
            Self::Memory { book, .. } => Some(&mut **book),
            Self::File { path, writer } => {
                writer.settle();
                let opened = Recording::open_while_written(path)
                    .inspect_err(|error| log::warn!("cannot read the recording: {error}"));
                Some(recording.insert(opened.ok()?))
            }
        }
    }

    /// Completes the history. Returns its file and the final status, if it has a file.
    pub(super) fn finish(self) -> Option<(PathBuf, Status)> {
        match self {
            Self::File { path, writer } => Some((path, writer.finish())),
            Self::Memory { .. } => None,
        }
    }
}

/// Returns the header of the history of a trace.
pub(in crate::trace) fn header_of_run(config: &Config, interval: Duration, start: SystemTime) -> Header {
    Header {
        classes: config.events.clone(),
        page_sample: if config.follows(EventClass::counts_pages) { config.pages.one_in().get() } else { 0 },
        older: config.blocks.older,
        ..recording_file::header(start, interval)
    }
}
