//! Outputs of the intervals: standard output, the table on a terminal, and the recording.

use std::io;
use std::io::IsTerminal as _;
use std::time::Duration;

use super::config::{MonitorConfig, MonitorFormat};
use super::monitor_recording::MonitorRecording;
use super::output_thread::OutputThread;
use super::reading::Reading;
use crate::model::MonitorInterval;
use crate::report::{
    ThreadHistory, ThreadTableOptions, write_thread_table, write_threads_csv, write_threads_csv_header,
    write_threads_json,
};
use crate::session::error::Error;
use crate::session::observer::Observer;

/// Lines of a table besides those of threads.
const OTHER_LINES: usize = 10;

/// Fewest threads in a table.
const FEWEST_ROWS: usize = 3;

/// Outputs of a thread monitor.
pub(super) struct Outputs {
    recording: Option<MonitorRecording>,
    format: Option<MonitorFormat>,
    stdout: OutputThread,
    /// The table changes in place.
    in_place: bool,
    history: ThreadHistory,
    options: ThreadTableOptions,
    /// The last table that was shown in place.
    last_table: Vec<u8>,
    intervals: u64,
}

impl Outputs {
    /// Creates the recording, and starts the thread that writes. `elapsed` is the time since the origin of the monitor's
    /// times.
    pub(super) fn create(
        config: &MonitorConfig,
        target: &str,
        elapsed: Duration,
        observer: &dyn Observer,
    ) -> Result<Self, Error> {
        let recording = config.recording.as_ref();
        let recording = recording.map(|recording| MonitorRecording::create(recording, target, elapsed)).transpose()?;
        let lines = observer.table_lines().filter(|_| io::stdout().is_terminal() && !config.once);
        let in_place = config.output == Some(MonitorFormat::Table) && lines.is_some();
        let fitting = lines.map_or(usize::MAX, |lines| lines.saturating_sub(OTHER_LINES).max(FEWEST_ROWS));
        Ok(Self {
            recording,
            format: config.output,
            stdout: OutputThread::start()?,
            in_place,
            history: ThreadHistory::new(config.sort),
            options: ThreadTableOptions { sort: config.sort, rows: config.rows.min(fitting), width: None },
            last_table: Vec::new(),
            intervals: 0,
        })
    }

    /// Notes the first reading.
    pub(super) fn start(&mut self, reading: &Reading) {
        if let Some(recording) = &mut self.recording {
            let since_boot = Duration::from_nanos(reading.boot_ns).saturating_sub(reading.at);
            recording.start(since_boot, reading.machine);
        }
    }

    /// Writes an interval. Returns the texts of its marks as they are recorded.
    pub(super) fn write(&mut self, interval: &MonitorInterval, observer: &mut dyn Observer) -> Vec<String> {
        // First of all: the other outputs may fail.
        let marks = self.recording.as_mut().map(|recording| recording.write(interval)).unwrap_or_default();
        let Some(format) = self.format else { return marks };
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _: io::Result<()> = self.format_interval(format, interval, &mut text);
        self.intervals += 1;
        if self.in_place {
            observer.table(&String::from_utf8_lossy(&text));
            self.last_table = text;
        } else {
            self.stdout.write(text);
        }
        marks
    }

    fn format_interval(
        &mut self,
        format: MonitorFormat,
        interval: &MonitorInterval,
        text: &mut Vec<u8>,
    ) -> io::Result<()> {
        match format {
            MonitorFormat::Json => write_threads_json(interval, text),
            MonitorFormat::Csv => {
                if self.intervals == 0 {
                    write_threads_csv_header(text)?;
                }
                write_threads_csv(interval, text)
            }
            MonitorFormat::Table => {
                if self.intervals > 0 && !self.in_place {
                    text.push(b'\n');
                }
                self.history.add(interval);
                write_thread_table(interval, &self.history, &self.options, text)
            }
        }
    }

    /// Returns the end of the last stored interval.
    pub(super) fn stored_until(&self) -> Duration {
        self.recording.as_ref().map_or(Duration::MAX, MonitorRecording::stored_until)
    }

    /// Returns true if nobody reads the output any more, and nothing is recorded.
    pub(super) fn is_closed(&self) -> bool {
        self.stdout.is_closed() && self.recording.is_none()
    }

    /// Completes the outputs. Returns false if intervals are missing.
    pub(super) fn finish(mut self, observer: &mut dyn Observer) -> bool {
        let complete = self.recording.is_none_or(|recording| recording.finish(observer));
        self.stdout.write(self.last_table);
        let skipped = self.stdout.finish();
        if skipped > 0 {
            observer.note(&format!("{skipped} intervals are missing on standard output, whose reader is too slow"));
        }
        complete && skipped == 0
    }
}
