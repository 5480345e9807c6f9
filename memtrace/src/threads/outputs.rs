//! Outputs of the intervals: standard output, the table on a terminal, the recording, and the trace.

use std::io;
use std::io::IsTerminal as _;
use std::time::Duration;

use memtrace_model::ThreadsInterval;
use memtrace_report::{
    ThreadHistory, ThreadTableOptions, write_thread_table, write_threads_csv, write_threads_csv_header,
    write_threads_json,
};

use super::config::{ThreadsConfig, ThreadsFormat};
use super::output_thread::OutputThread;
use super::reading::Reading;
use super::recording::ThreadsRecording;
use super::trace_thread::TraceThread;
use crate::run_kit::error::{Error, NotWritten};
use crate::run_kit::observer::Observer;
use crate::run_kit::table_rows;

/// Minimum number of threads in a table.
const FEWEST_ROWS: usize = 3;

/// An interval shorter than the configured length divided by this number gets no table.
const SHORTEST_TABLE: u32 = 10;

/// Outputs of a thread monitor.
pub(super) struct Outputs {
    recording: Option<ThreadsRecording>,
    trace: Option<TraceThread>,
    format: Option<ThreadsFormat>,
    stdout: OutputThread,
    /// True if the table is redrawn in place.
    in_place: bool,
    history: ThreadHistory,
    /// Extent of a table without a limit of its size.
    options: ThreadTableOptions,
    /// The last table that was shown in place.
    last_table: Vec<u8>,
    intervals: u64,
    /// Configured length of an interval.
    interval: Duration,
}

impl Outputs {
    /// Creates the recording, and starts the output thread. `clock_start`: origin of the monitor's times on the
    /// monotonic clock.
    pub(super) fn create(
        config: &ThreadsConfig,
        trace: Option<TraceThread>,
        target: &str,
        clock_start: Duration,
        observer: &dyn Observer,
    ) -> Result<Self, Error> {
        let recording = config.recording.as_ref();
        let recording =
            recording.map(|recording| ThreadsRecording::create(recording, target, clock_start)).transpose()?;
        let is_refreshed = observer.table_size().is_some() && io::stdout().is_terminal() && !config.once;
        Ok(Self {
            recording,
            trace,
            format: config.output,
            stdout: OutputThread::start()?,
            in_place: is_refreshed && config.output == Some(ThreadsFormat::Table),
            history: ThreadHistory::new(config.sort),
            options: ThreadTableOptions { sort: config.sort, rows: config.rows, width: None },
            last_table: Vec::new(),
            intervals: 0,
            interval: config.interval,
        })
    }

    /// Notes the first reading.
    ///
    /// # Errors
    ///
    /// The thread that writes the trace cannot be started.
    pub(super) fn start(&mut self, reading: &Reading) -> Result<(), Error> {
        let since_boot = Duration::from_nanos(reading.boot_ns).saturating_sub(reading.at);
        if let Some(recording) = &mut self.recording {
            recording.start(since_boot, reading.machine);
        }
        self.trace.as_mut().map_or(Ok(()), |trace| trace.start(since_boot.as_nanos() as u64))
    }

    /// Writes an interval. Returns the texts that its marks have in the recording.
    pub(super) fn write(&mut self, interval: &ThreadsInterval, observer: &mut dyn Observer) -> Vec<String> {
        // The recording comes first, because the other outputs may fail.
        let marks = self.recording.as_mut().map(|recording| recording.write(interval)).unwrap_or_default();
        if let Some(trace) = &mut self.trace {
            trace.add(interval);
        }
        let Some(format) = self.format.filter(|&format| self.shows(format, interval)) else { return marks };
        let mut text = Vec::new();
        let size = if self.in_place { observer.table_size() } else { None };
        let width = size.map(|size| size.columns).or_else(|| observer.output_columns());
        // Writing to memory does not fail.
        let _: io::Result<()> = match format {
            ThreadsFormat::Json => write_threads_json(interval, &mut text),
            ThreadsFormat::Csv => self.csv(interval, &mut text),
            ThreadsFormat::Table => {
                text = self.table(interval, width, size.map(|size| size.lines)).into_bytes();
                Ok(())
            }
        };
        self.intervals += 1;
        if self.in_place {
            observer.table(&String::from_utf8_lossy(&text));
            self.last_table = text;
        } else {
            self.stdout.write(text);
        }
        marks
    }

    /// Returns false for the table of a short interval, such as the last one. Its rates mean nothing, and the table
    /// would replace the previous table.
    fn shows(&self, format: ThreadsFormat, interval: &ThreadsInterval) -> bool {
        format != ThreadsFormat::Table || self.intervals == 0 || is_worth_a_table(interval, self.interval)
    }

    fn csv(&self, interval: &ThreadsInterval, text: &mut Vec<u8>) -> io::Result<()> {
        if self.intervals == 0 {
            write_threads_csv_header(text)?;
        }
        write_threads_csv(interval, text)
    }

    /// Returns a table of at most `width` columns of a terminal, and of at most this number of lines, if possible. The
    /// size of the terminal may have changed since the last table.
    fn table(&mut self, interval: &ThreadsInterval, width: Option<usize>, lines: Option<usize>) -> String {
        self.history.add(interval);
        let threads: usize = interval.processes.iter().map(|process| process.threads.len()).sum();
        let with_rows = |rows| {
            let mut table = Vec::new();
            let options = ThreadTableOptions { rows, width, ..self.options };
            // Writing to memory does not fail.
            let _ = write_thread_table(interval, &self.history, &options, &mut table);
            String::from_utf8_lossy(&table).into_owned()
        };
        let table = table_rows::fitting_text(self.options.rows.min(threads), FEWEST_ROWS, lines, with_rows);
        // A blank line separates tables.
        if self.intervals > 0 && !self.in_place { format!("\n{table}") } else { table }
    }

    /// Returns the end of the last stored interval; [`Duration::MAX`] without a recording.
    pub(super) fn stored_until(&self) -> Duration {
        self.recording.as_ref().map_or(Duration::MAX, ThreadsRecording::stored_until)
    }

    /// Returns true if standard output can no longer be written, and no file is written.
    pub(super) fn is_closed(&self) -> bool {
        self.stdout.is_closed() && self.recording.is_none() && self.trace.is_none()
    }

    /// Completes the outputs. Returns false if intervals are missing, and the result of writing the trace.
    pub(super) fn finish(mut self, observer: &mut dyn Observer) -> (bool, Result<(), NotWritten>) {
        let complete = self.recording.is_none_or(|recording| recording.finish(observer));
        if self.in_place {
            observer.erase_table();
            self.stdout.write(self.last_table);
        }
        // Standard output comes last, because its reader may never read it.
        let trace = self.trace.map_or(Ok(()), |trace| trace.finish(observer));
        let skipped = self.stdout.finish();
        if skipped > 0 {
            observer.note(&format!("{skipped} intervals are missing on standard output, whose reader is too slow"));
        }
        (complete && skipped == 0, trace)
    }
}

/// Returns true if an interval is long enough for a table, or has events or losses.
fn is_worth_a_table(interval: &ThreadsInterval, usual: Duration) -> bool {
    let length = interval.span.end.saturating_sub(interval.span.start);
    length >= usual / SHORTEST_TABLE || !interval.events.is_empty() || interval.losses.unexpected() > 0
}

#[cfg(test)]
mod tests {
    use memtrace_model::{LossReason, ThreadsEvent, ThreadsEventKind};

    use super::*;

    #[test]
    fn short_interval_has_a_table_if_something_happened() {
        let second = Duration::from_secs(1);
        let interval = |milliseconds| {
            let end = second + Duration::from_millis(milliseconds);
            ThreadsInterval { span: second..end, ..ThreadsInterval::default() }
        };
        assert!(is_worth_a_table(&interval(100), second));
        let short = interval(99);
        assert!(!is_worth_a_table(&short, second));
        let mut freed = short.clone();
        freed.losses.add(LossReason::SizeUnknown, 1);
        assert!(!is_worth_a_table(&freed, second));
        let mut lossy = short.clone();
        lossy.losses.add(LossReason::ProcessesFull, 1);
        assert!(is_worth_a_table(&lossy, second));
        let kind = ThreadsEventKind::Mark(String::from("deploy"));
        let eventful = ThreadsInterval { events: vec![ThreadsEvent { at: second, kind }], ..short };
        assert!(is_worth_a_table(&eventful, second));
    }
}
