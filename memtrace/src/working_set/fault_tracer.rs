//! Page faults of the measured processes, traced by the BPF programs of `memtrace faults` without stacks.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use memtrace_host::kernel::{self, Kernel, MapSizes, MapUses, ProgramTime, RingReader};
use memtrace_host::procfs::{self, PageReading, ProcessError};
use memtrace_model::{Bytes, Event, EventKind, FaultedPages, Pid};

use crate::run_kit::error::{Error, from_engines};
use crate::targets::select::{LeftOut, Target, filter};

/// Size of the ring. It has room for the faults of all processors during one [`POLL`].
const RING: Bytes = Bytes(1 << 24);

/// Memory of the BPF maps.
const MAPS: Bytes = Bytes(1 << 24);

/// Time between two readings of the ring.
const POLL: Duration = Duration::from_millis(10);

/// Number of records in a batch. The reader thread unlocks the ring after each batch.
const BATCH: u64 = 1 << 16;

/// Tracer of page faults. Dropping it ends the trace.
pub(super) struct FaultTracer {
    kernel: Kernel,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State that the tracer and its thread share.
struct Shared {
    ring: Mutex<Ring>,
    stop: AtomicBool,
}

/// The ring, and the pages of the faults that were read from it.
struct Ring {
    reader: RingReader,
    pages: FaultedPages,
    /// Number of records that could not be decoded.
    bad: u64,
}

impl FaultTracer {
    /// Traces the processes of a target.
    ///
    /// # Errors
    ///
    /// The kernel cannot trace page faults, or permission is missing.
    pub(super) fn start(target: &Target, left_out: &LeftOut) -> Result<Self, Error> {
        let failed = |error| from_engines::kernel(None, error);
        kernel::features::require().map_err(failed)?;
        let options = kernel::Options {
            ring_size: RING,
            map_sizes: MapSizes::within(MAPS, 1, MapUses::default()).unwrap_or(MapSizes::SMALLEST),
            page_sample: Some(NonZeroU32::MIN),
            filter: filter::resolve(target, false, left_out.memtraces())?,
            ..kernel::Options::default()
        };
        let (mut kernel, mut readers) = Kernel::load(&options).map_err(failed)?;
        if let Target::Pids { pids, .. } = target {
            for &pid in pids {
                kernel.follow(pid).map_err(|error| from_engines::kernel(Some(pid), error))?;
            }
        }
        let unreadable = |error| Error::Failed(format!("cannot read the size of a page: {error}"));
        let pages = FaultedPages::new(procfs::page_size().map_err(unreadable)?);
        let reader = readers.pop().ok_or_else(|| Error::Failed(String::from("the BPF programs have no ring")))?;
        let ring = Mutex::new(Ring { reader, pages, bad: 0 });
        let shared = Arc::new(Shared { ring, stop: AtomicBool::new(false) });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name(String::from("memtrace-faults")).spawn(move || read_all(&of_thread));
        let thread = thread.map_err(|error| Error::Failed(format!("cannot start a thread: {error}")))?;
        kernel.time_programs(true);
        kernel.open().map_err(failed)?;
        Ok(Self { kernel, shared, thread: Some(thread) })
    }

    /// Forgets the page faults of a process. Later faults count.
    pub(super) fn clear(&self, pid: Pid) {
        self.read_ring().pages.clear(pid);
    }

    /// Returns the resident pages of a process, with marks on pages that had a page fault since [`Self::clear`].
    ///
    /// # Errors
    ///
    /// The process has exited, or permission is missing.
    pub(super) fn read(&self, pid: Pid) -> Result<PageReading, ProcessError> {
        // Read before the ring is locked, so that the other thread can continue to empty the ring.
        let resident = procfs::tracked_ranges(pid)?;
        Ok(PageReading { pages: self.read_ring().pages.touched(pid, &resident), locked: None })
    }

    /// Returns the number of page faults that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        // Read before the ring is locked, so that the other thread can continue to empty the ring.
        let by_programs = self.kernel.counters().losses.total();
        let ring = self.read_ring();
        by_programs + ring.bad + ring.pages.lost()
    }

    /// Returns the number of page faults, and the time of the BPF programs.
    pub(super) fn cost(&self) -> (u64, ProgramTime) {
        (self.read_ring().pages.faults(), self.kernel.program_time())
    }

    /// Locks the ring, and reads all its records.
    fn read_ring(&self) -> MutexGuard<'_, Ring> {
        let mut ring = self.shared.ring();
        while ring.read() {}
        ring
    }
}

impl Drop for FaultTracer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If the thread has panicked, its message is printed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// Reads a batch of records. Returns true if the batch is full, so that more records may follow.
    fn read(&mut self) -> bool {
        let Self { reader, pages, bad } = self;
        let drained = reader.drain(BATCH, |event| add(pages, &event));
        *bad += drained.bad;
        drained.events + drained.bad == BATCH
    }
}

fn add(pages: &mut FaultedPages, event: &Event) {
    match &event.kind {
        EventKind::Fault { page, .. } => pages.add(event.pid, *page),
        EventKind::Exec => pages.exec(event.pid),
        EventKind::Exit => pages.forget(event.pid),
        _ => {}
    }
}

/// Empties the ring until the tracer is dropped, so that the ring does not overflow.
fn read_all(shared: &Shared) {
    RingReader::raise_priority();
    while !shared.stop.load(Ordering::Relaxed) {
        let is_empty = !shared.ring().read();
        if is_empty {
            thread::park_timeout(POLL);
        }
    }
}
