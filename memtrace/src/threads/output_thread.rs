//! Standard output, written by a thread of its own: a slow reader must not delay the recording.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use crate::run_kit::error::Error;
use crate::run_kit::outputs::Patient;
use crate::run_kit::privileges;

/// Maximum number of texts in the queue.
const QUEUE: usize = 64;

/// Writer of standard output.
pub(super) struct OutputThread {
    texts: SyncSender<Vec<u8>>,
    thread: JoinHandle<()>,
    /// True if the reader has closed the pipe, or an error has occurred.
    is_closed: Arc<AtomicBool>,
    /// Number of texts that were not written because the reader was too slow.
    skipped: u64,
}

impl OutputThread {
    pub(super) fn start() -> Result<Self, Error> {
        let (texts, receiver) = sync_channel::<Vec<u8>>(QUEUE);
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&is_closed);
        let run = move || {
            privileges::keep_for_reports();
            for text in receiver {
                if let Err(error) = Patient(&io::stdout().lock()).write_all(&text) {
                    if error.kind() != io::ErrorKind::BrokenPipe {
                        log::warn!("cannot write to standard output: {error}");
                    }
                    closed.store(true, Ordering::Relaxed);
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(String::from("memtrace-output"))
            .spawn(run)
            .map_err(|error| Error::Failed(format!("cannot start the thread that writes: {error}")))?;
        Ok(Self { texts, thread, is_closed, skipped: 0 })
    }

    /// Queues a text. If the queue is full, the text is skipped.
    pub(super) fn write(&mut self, text: Vec<u8>) {
        if let Err(TrySendError::Full(_)) = self.texts.try_send(text) {
            self.skipped += 1;
        }
    }

    /// Returns true if the output can no longer be written.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Waits until all queued texts are written. Returns the number of skipped texts.
    pub(super) fn finish(self) -> u64 {
        drop(self.texts);
        // The thread does not panic, so there is no error to report.
        let _ = self.thread.join();
        self.skipped
    }
}
