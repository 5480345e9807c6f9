//! Background thread that builds unwind tables, so that a large object does not delay the run.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use memtrace_host::unwind_tables::{Begun, Built, Construction, TableCache};
use memtrace_model::{Bytes, Object};
use memtrace_object::eh_frame::Descriptions;
use tokio::sync::Notify;

/// Maximum number of messages that wait. A table that waits takes memory, and the cache returns tables faster than they are
/// published.
const MAX_WAITING: usize = 4;

/// Message from the thread about an object.
pub(super) enum Progress {
    /// The call frame information of the object is indexed, and its table is queued. Until the table is built, single
    /// pages can be made from the descriptions.
    Indexed(Arc<Object>, Descriptions),
    /// The table is built.
    Built(Built),
}

/// A thread that builds unwind tables.
pub(super) struct Builder {
    /// Objects for the thread. The thread ends when this sender is dropped.
    jobs: Option<Sender<Arc<Object>>>,
    /// Messages of the thread; `None` once the builder is dropped, so that the thread does not wait for room.
    progress: Option<Receiver<Progress>>,
    ready: Arc<Notify>,
    /// True if the thread must end without the queued objects.
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// State of the thread.
struct Worker {
    queue: Receiver<Arc<Object>>,
    cache: Option<Arc<TableCache>>,
    /// Indexed objects without a table, ordered as in the queue.
    begun: VecDeque<Construction>,
    /// Size of the call frame information of the objects in `begun`, in bytes.
    bytes: usize,
    /// Limit of `bytes`. At the limit, further objects wait until a table is finished.
    max_bytes: usize,
    progress: SyncSender<Progress>,
    ready: Arc<Notify>,
    stopped: Arc<AtomicBool>,
}

impl Builder {
    /// Starts the thread. It uses tables from `cache` if they exist, and indexes an object before it builds its table.
    /// The call frame information of the objects takes at most `memory`, plus one object.
    pub(super) fn start(cache: Option<Arc<TableCache>>, memory: Bytes) -> Self {
        let (jobs, queue) = mpsc::channel();
        let (sender, progress) = mpsc::sync_channel(MAX_WAITING);
        let ready = Arc::new(Notify::new());
        let stopped = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            queue,
            cache,
            begun: VecDeque::new(),
            bytes: 0,
            max_bytes: usize::try_from(memory.0).unwrap_or(usize::MAX),
            progress: sender,
            ready: Arc::clone(&ready),
            stopped: Arc::clone(&stopped),
        };
        let thread = thread::Builder::new().name(String::from("unwind tables")).spawn(move || worker.run());
        let thread = thread.inspect_err(|error| log::warn!("cannot start a thread for unwind tables: {error}")).ok();
        Self { jobs: Some(jobs), progress: Some(progress), ready, stopped, thread }
    }

    /// Queues the object.
    pub(super) fn queue(&self, object: Arc<Object>) {
        if let Some(jobs) = &self.jobs {
            // If the thread could not be started, queued objects get no table, and stacks through them are cut.
            let _ = jobs.send(object);
        }
    }

    /// Returns the next result.
    pub(super) fn next(&self) -> Option<Progress> {
        self.progress.as_ref()?.try_recv().ok()
    }

    /// Waits for the next result; returns `None` if there is none within `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> Option<Progress> {
        self.progress.as_ref()?.recv_timeout(timeout).ok()
    }

    /// Returns the notification that is sent with each result.
    pub(super) fn ready(&self) -> Arc<Notify> {
        Arc::clone(&self.ready)
    }
}

impl Worker {
    fn run(&mut self) {
        while !self.stopped.load(Ordering::Relaxed) {
            // Indexing an object takes a fraction of the time that its table takes. So all queued objects are indexed
            // before the next table is built.
            let new = if self.begun.is_empty() {
                self.queue.recv().ok()
            } else if self.bytes < self.max_bytes {
                self.queue.try_recv().ok()
            } else {
                None
            };
            match new {
                Some(object) => self.begin(object),
                None => match self.begun.pop_front() {
                    Some(construction) => self.build(construction),
                    None => return,
                },
            }
        }
    }

    fn begin(&mut self, object: Arc<Object>) {
        let construction = match Construction::begin(&object, self.cache.as_deref()) {
            Ok(Begun::New(construction)) => construction,
            Ok(Begun::Stored(table)) => return self.send(Progress::Built(Built { object, table: Ok(table) })),
            Err(error) => return self.send(Progress::Built(Built { object, table: Err(error) })),
        };
        match construction.descriptions() {
            Ok(descriptions) => self.send(Progress::Indexed(object, descriptions)),
            Err(error) => return self.send(Progress::Built(Built { object, table: Err(error) })),
        }
        self.bytes += construction.size();
        self.begun.push_back(construction);
    }

    fn build(&mut self, construction: Construction) {
        self.bytes -= construction.size();
        let table = construction.build(self.cache.as_deref());
        self.send(Progress::Built(Built { object: construction.object, table }));
    }

    fn send(&self, progress: Progress) {
        // Sending fails only after the builder was dropped.
        let _ = self.progress.send(progress);
        self.ready.notify_one();
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        drop(self.jobs.take());
        drop(self.progress.take());
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
