//! The trace for Perfetto, written by a thread of its own: a slow disk must not delay the readings.

use std::fs::File;
use std::io::{BufWriter, Seek as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use memtrace_model::{ThreadsInterval, printable};
use memtrace_report::{Format, ThreadTrace};

use crate::run_kit::error::{Error, NotWritten};
use crate::run_kit::observer::Observer;
use crate::run_kit::outputs::{self, StreamedOutput, Written};
use crate::run_kit::privileges;

/// Maximum number of intervals that wait to be written. Further intervals are joined into one.
const QUEUE: usize = 4;

/// Trace for Perfetto that is being written.
pub(super) struct TraceThread {
    output: StreamedOutput,
    /// Thread that writes; `None` before the first reading.
    writer: Option<Writer>,
}

struct Writer {
    intervals: SyncSender<ThreadsInterval>,
    /// Joined intervals that did not fit into the queue.
    waiting: Option<ThreadsInterval>,
    thread: JoinHandle<Written>,
}

impl TraceThread {
    /// Opens the file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { output: StreamedOutput::open(path, Format::Perfetto.extension())?, writer: None })
    }

    /// Starts the thread. `origin`: origin of the monitor's times, in nanoseconds since the boot of the machine.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub(super) fn start(&mut self, origin: u64) -> Result<(), Error> {
        let failed = |error| Error::Failed(format!("cannot start the thread that writes the trace: {error}"));
        let file = self.output.file().map_err(failed)?;
        let path = printable(self.output.path()).into_owned();
        let (intervals, receiver) = sync_channel(QUEUE);
        let run = move || {
            privileges::keep_for_reports();
            let written = write(&file, origin, &receiver);
            if let Err(error) = &written.outcome {
                log::warn!("the trace {path} ends early: {error}");
            }
            written
        };
        let thread = std::thread::Builder::new().name(String::from("memtrace-trace")).spawn(run).map_err(failed)?;
        self.writer = Some(Writer { intervals, waiting: None, thread });
        Ok(())
    }

    /// Adds an interval, without waiting for the disk.
    pub(super) fn add(&mut self, interval: &ThreadsInterval) {
        let Some(writer) = &mut self.writer else { return };
        let next = match writer.waiting.take() {
            Some(mut waiting) => {
                waiting.append(interval);
                waiting
            }
            None => interval.clone(),
        };
        // After an error, the thread has ended, and the interval is dropped.
        if let Err(TrySendError::Full(next)) = writer.intervals.try_send(next) {
            writer.waiting = Some(next);
        }
    }

    /// Completes the file.
    ///
    /// # Errors
    ///
    /// The file is not written, or only in part.
    pub(super) fn finish(self, observer: &mut dyn Observer) -> Result<(), NotWritten> {
        let Some(Writer { intervals, waiting, thread }) = self.writer else { return Ok(()) };
        if let Some(waiting) = waiting {
            // After an error, the thread has ended, and the intervals are dropped.
            let _ = intervals.send(waiting);
        }
        drop(intervals);
        // The thread does not panic, so there is no error to report.
        let Ok(written) = thread.join() else { return Ok(()) };
        let path = self.output.finish(written, &outputs::rescue_directories())?;
        observer.note(&format!("wrote {}", printable(&path)));
        Ok(())
    }
}

/// Writes intervals until there are no more.
fn write(file: &File, origin: u64, intervals: &Receiver<ThreadsInterval>) -> Written {
    let mut complete = 0;
    let mut out = BufWriter::new(file);
    let outcome = ThreadTrace::start(&mut out, origin).and_then(|mut trace| {
        for interval in intervals {
            trace.add(&interval)?;
            trace.flush()?;
            // A pipe has no position, but it cannot be read again anyway.
            complete = (&mut &*file).stream_position().unwrap_or_default();
        }
        trace.flush()
    });
    Written { complete, outcome }
}
