//! Background thread that builds unwind tables, so that a large object does not delay the run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;

use crate::eh_frame::{BuildJob, Built, Cache, build_all};
use crate::model::Object;

/// A thread that builds unwind tables.
pub(super) struct Builder {
    /// `None` makes the thread end.
    jobs: Option<Sender<Arc<Object>>>,
    built: Receiver<Built>,
    ready: Arc<Notify>,
    /// Set when queued jobs are to be dropped.
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Builder {
    /// Starts the thread, which uses tables from `cache` if it has them.
    pub(super) fn start(cache: Option<Arc<Cache>>) -> Self {
        let (jobs, queue) = mpsc::channel::<Arc<Object>>();
        let (sender, built) = mpsc::channel();
        let ready = Arc::new(Notify::new());
        let notify = Arc::clone(&ready);
        let stopped = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stopped);
        let work = move || {
            while let Ok(object) = queue.recv()
                && !is_stopped.load(Ordering::Relaxed)
            {
                let job = vec![BuildJob { object, users: 1 }];
                build_all(job, 1, cache.as_deref(), |built| {
                    // Fails only after the builder was dropped.
                    let _ = sender.send(built);
                    notify.notify_one();
                });
            }
        };
        let thread = thread::Builder::new().name(String::from("unwind tables")).spawn(work);
        let thread = thread.inspect_err(|error| log::warn!("cannot start a thread for unwind tables: {error}")).ok();
        Self { jobs: Some(jobs), built, ready, stopped, thread }
    }

    /// Queues the object.
    pub(super) fn queue(&self, object: Arc<Object>) {
        if let Some(jobs) = &self.jobs {
            // Without a thread there is no table, which the end of each stack shows.
            let _ = jobs.send(object);
        }
    }

    /// Returns the next finished table.
    pub(super) fn next(&self) -> Option<Built> {
        self.built.try_recv().ok()
    }

    /// Waits for the next finished table; `None` after `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> Option<Built> {
        self.built.recv_timeout(timeout).ok()
    }

    /// Returns the notification that a table is finished.
    pub(super) fn ready(&self) -> Arc<Notify> {
        Arc::clone(&self.ready)
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Builder").finish_non_exhaustive()
    }
}
