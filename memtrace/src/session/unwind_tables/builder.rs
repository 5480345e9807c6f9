//! Tables built beside the run, so that a large object keeps nobody waiting.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use tokio::sync::Notify;

use crate::eh_frame::{BuildJob, Built, Cache, build_all};
use crate::model::Object;

/// A thread that builds tables.
pub(super) struct Builder {
    /// Taken when the thread is to end.
    wanted: Option<Sender<Arc<Object>>>,
    built: Receiver<Built>,
    ready: Arc<Notify>,
    /// Nobody waits for what has not been begun.
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Builder {
    /// Starts the thread, which takes tables from `cache` where it has them.
    pub(super) fn start(cache: Option<Arc<Cache>>) -> Self {
        let (wanted, requests) = mpsc::channel::<Arc<Object>>();
        let (sender, built) = mpsc::channel();
        let ready = Arc::new(Notify::new());
        let notify = Arc::clone(&ready);
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let work = move || {
            while let Ok(object) = requests.recv()
                && !is_over.load(Ordering::Relaxed)
            {
                let wanted = vec![BuildJob { object, users: 1 }];
                build_all(wanted, 1, cache.as_deref(), |built| {
                    // Whoever does not wait for it any more does not want it.
                    let _ = sender.send(built);
                    notify.notify_one();
                });
            }
        };
        let thread = thread::Builder::new().name(String::from("unwind tables")).spawn(work);
        let thread = thread.inspect_err(|error| log::warn!("no thread for unwind tables: {error}")).ok();
        Self { wanted: Some(wanted), built, ready, over, thread }
    }

    /// Has the object's table built.
    pub(super) fn want(&self, object: Arc<Object>) {
        if let Some(wanted) = &self.wanted {
            // Without a thread there is no table; the stacks say so.
            let _ = wanted.send(object);
        }
    }

    /// A table that was built.
    pub(super) fn next(&self) -> Option<Built> {
        self.built.try_recv().ok()
    }

    /// Tells that there is one.
    pub(super) fn ready(&self) -> Arc<Notify> {
        Arc::clone(&self.ready)
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(self.wanted.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been said already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Builder").finish_non_exhaustive()
    }
}
