//! The thread of the sampler.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::reading::Reading;
use super::sampler::{Request, Sampler};
use crate::run_kit::error::Error;
use crate::run_kit::realtime;

/// Maximum number of readings that wait to be processed. Output to a slow disk or pipe may take this many
/// intervals.
const QUEUE: usize = 64;

/// A running sampler. Dropping it ends the sampler.
pub(super) struct SamplingThread {
    requests: Sender<Request>,
    readings: mpsc::Receiver<Reading>,
    thread: JoinHandle<io::Result<()>>,
}

impl SamplingThread {
    /// Starts the sampler. `realtime`: real-time priority of the thread; `None` for normal scheduling.
    pub(super) fn start(sampler: Sampler, realtime: Option<u8>) -> Result<Self, Error> {
        let (requests, receiver) = channel();
        let (sender, readings) = mpsc::channel(QUEUE);
        let run = move || {
            if let Some(priority) = realtime
                && let Err(error) = realtime::set(priority)
            {
                log::warn!("--realtime has no effect: {error}");
            }
            sampler.run(&receiver, &sender)
        };
        let thread = std::thread::Builder::new()
            .name(String::from("memtrace-sample"))
            .spawn(run)
            .map_err(|error| Error::Failed(format!("cannot start the thread that reads counters: {error}")))?;
        Ok(Self { requests, readings, thread })
    }

    /// Waits for a reading; returns `None` if the sampler has ended.
    pub(super) async fn next(&mut self) -> Option<Reading> {
        self.readings.recv().await
    }

    /// Sends a request. It has no effect if the sampler has ended.
    pub(super) fn request(&self, request: Request) {
        let _ = self.requests.send(request);
    }

    /// Returns the error that ended the sampler, if there was one.
    pub(super) fn finish(self) -> Result<(), Error> {
        drop(self.requests);
        match self.thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Error::Failed(format!("cannot read the counters of threads: {error}"))),
            Err(_) => Err(Error::Failed(String::from("the thread that reads counters has failed"))),
        }
    }
}
