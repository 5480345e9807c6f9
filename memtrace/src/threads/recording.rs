//! The recording of a thread monitor.

use std::path::PathBuf;
use std::time::Duration;

use memtrace_history::facts::{self, RecordedGrouping};
use memtrace_history::{Settings, ThreadRecorder, Writer};
use memtrace_model::{MachineUsage, ThreadsInterval, Tick, printable};

use crate::run_kit::clock;
use crate::run_kit::config::Recording;
use crate::run_kit::error::Error;
use crate::run_kit::observer::Observer;
use crate::run_kit::recording_file;

/// Recording of a monitor in progress.
pub(super) struct ThreadsRecording {
    path: PathBuf,
    writer: Writer,
    /// Converter of the intervals; `None` before the first reading.
    recorder: Option<ThreadRecorder>,
    /// Description of the targets, recorded with the first interval.
    target: Option<String>,
}

impl ThreadsRecording {
    /// Creates the file. `clock_start`: origin of the monitor's times on the monotonic clock.
    pub(super) fn create(recording: &Recording, target: &str, clock_start: Duration) -> Result<Self, Error> {
        let start = clock::wall_time_of_start(|| clock::monotonic().saturating_sub(clock_start));
        let header = recording_file::header(start, recording.interval);
        let writer = recording_file::create(recording, &header, Settings::default())?;
        Ok(Self { path: recording.path.clone(), writer, recorder: None, target: Some(target.to_owned()) })
    }

    /// Notes the first reading. `since_boot`: time from the boot of the machine to the origin of the monitor's times.
    pub(super) fn start(&mut self, since_boot: Duration, machine: MachineUsage) {
        self.recorder = Some(ThreadRecorder::new(since_boot, machine));
    }

    /// Adds an interval. Returns the texts that its marks have in the recording.
    pub(super) fn write(&mut self, interval: &ThreadsInterval) -> Vec<String> {
        let Some(recorder) = &mut self.recorder else { return Vec::new() };
        let mut recorded = recorder.convert(interval);
        if let Some(target) = self.target.take() {
            let start = Tick::at(interval.span.start);
            recorded.facts.extend(facts::at_start(&target, start, &RecordedGrouping::default(), None));
        }
        let marks = recorded.marks.iter().map(|mark| mark.text.clone()).collect();
        self.writer.push(recorded);
        marks
    }

    /// Returns the end of the last stored interval.
    pub(super) fn stored_until(&self) -> Duration {
        self.writer.status().stored_until
    }

    /// Completes the file. Returns false if intervals could not be stored.
    pub(super) fn finish(self, observer: &mut dyn Observer) -> bool {
        let status = self.writer.finish();
        observer.note(&format!("recorded {}", printable(&self.path)));
        if let Some(gap) = &status.open_gap {
            log::warn!("the last {} intervals are missing in the recording", gap.intervals);
        }
        status.open_gap.is_none()
    }
}
