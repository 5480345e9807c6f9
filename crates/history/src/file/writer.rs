//! Thread that writes a recording.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use memtrace_model::Bytes;
use rusqlite::ErrorCode;

use super::error::Error;
use super::queue::Queue;
use super::store::Store;
use crate::gap::{Gap, GapReason};
use crate::header::Header;
use crate::interval::Interval;

/// Settings of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum size of the file, without the write-ahead log. Values below 1 MiB count as 1 MiB.
    pub size_limit: Bytes,
    /// Maximum number of intervals that wait for the writer. If there are more, two of them are merged. More intervals
    /// can wait if they end in marks.
    pub queue: usize,
    /// Maximum number of rows of all waiting intervals. If there are more, two intervals are merged.
    pub queued_rows: usize,
    /// Approximate maximum number of stacks with remembered row numbers.
    pub known_totals: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { size_limit: Bytes(1 << 30), queue: 16, queued_rows: 1 << 20, known_totals: 1 << 20 }
    }
}

/// State of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Number of stored intervals. An interval that was merged from several counts once.
    pub intervals: u64,
    /// End of the last stored interval, since the start of the trace.
    pub stored_until: Duration,
    /// Number of intervals that were merged into others because the writer was too slow.
    pub merged: u64,
    /// Number of gaps that later intervals have filled.
    pub gaps: u64,
    /// Gap that is not filled yet: its intervals wait for the next interval that can be stored.
    pub open_gap: Option<Gap>,
    /// Size of the database in the file.
    pub size: Bytes,
    /// Error of the last attempt to merge old rows; `None` if it succeeded.
    pub compaction_error: Option<String>,
}

/// Writes a recording in a thread of its own.
#[derive(Debug)]
pub struct Writer {
    queue: Arc<Queue>,
    status: Arc<Mutex<Status>>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Creates a recording and starts its thread. An older recording is replaced.
    ///
    /// # Errors
    ///
    /// The file cannot be created, is not a recording, or is being written by another process.
    pub fn create(path: &Path, header: &Header, settings: Settings) -> Result<Self, Error> {
        let lock = replace_file(path)?;
        let store = Store::create(path, header, settings.size_limit, settings.known_totals).map_err(Error::Sqlite)?;
        let (queue, status) =
            (Arc::new(Queue::new(settings.queue, settings.queued_rows)), Arc::<Mutex<Status>>::default());
        let (intervals, shared) = (Arc::clone(&queue), Arc::clone(&status));
        let run = move || {
            write_all(store, &intervals, &shared);
            // Closing any handle of the file releases SQLite's locks of this process (fcntl(2)), so this handle is
            // closed last.
            drop(lock);
        };
        let thread = thread::Builder::new().name(String::from("recording")).spawn(run)?;
        Ok(Self { queue, status, thread })
    }

    /// Passes the next interval to the writer. The call does not block: if the writer is behind, intervals are
    /// merged.
    pub fn push(&self, interval: Interval) {
        self.queue.push(interval);
    }

    /// Returns the state of the recording.
    #[must_use]
    pub fn status(&self) -> Status {
        Status { merged: self.queue.merged(), ..lock(&self.status).clone() }
    }

    /// Waits until all intervals are stored, so that this process can read them. If the returned state has an open gap,
    /// the intervals of the gap could not be stored. From now on, intervals stay as they are, unless the file reaches
    /// its size limit.
    pub fn settle(&self) -> Status {
        self.queue.settle();
        self.status()
    }

    /// Waits until all intervals are stored, and completes the file. If the returned state has an open gap, the
    /// intervals of the gap could not be stored.
    #[must_use]
    pub fn finish(self) -> Status {
        self.queue.close();
        // If the thread has panicked, its last state is returned.
        let _ = self.thread.join();
        Status { merged: self.queue.merged(), ..lock(&self.status).clone() }
    }
}

/// Beginning of an SQLite database.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Creates the file or empties an older recording, and locks the file against other writers.
fn replace_file(path: &Path) -> Result<File, Error> {
    // The caller has resolved links, but another user of the directory may have created a link since.
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Error::NotRegular);
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Error::InUse),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    let mut start = Vec::new();
    (&mut file).take(72).read_to_end(&mut start)?;
    if !start.is_empty() {
        if !start.starts_with(MAGIC) {
            return Err(Error::NotDatabase);
        }
        let id = start.get(68..72).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_be_bytes);
        if id != super::schema::APPLICATION_ID {
            return Err(Error::Foreign(id));
        }
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        remove_if_present(&with_suffix(path, suffix))?;
    }
    file.set_len(0)?;
    Ok(file)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn lock(status: &Mutex<Status>) -> MutexGuard<'_, Status> {
    // A poisoned lock has a consistent state: nothing panics while the state changes.
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores all intervals of `queue`, then completes the file.
fn write_all(mut store: Store, queue: &Queue, status: &Mutex<Status>) {
    let mut unwritten: Option<Unwritten> = None;
    while let Some(interval) = queue.pop() {
        let mut pending = Unwritten::after(unwritten.take(), interval);
        match write(&mut store, &pending) {
            Ok(()) => {
                let mut status = lock(status);
                status.intervals += 1;
                status.stored_until = pending.interval.span.end;
                status.gaps += u64::from(pending.gap.is_some());
                status.open_gap = None;
            }
            Err(error) => {
                let reason = gap_reason(&error, store.is_at_limit(&pending.interval));
                if pending.gap.is_none() {
                    log::warn!("the recording has a gap ({}): {error}", reason.name());
                }
                pending.fail(reason);
                lock(status).open_gap.clone_from(&pending.gap);
                unwritten = Some(pending);
            }
        }
        compact(&mut store, queue, status);
    }
    if let Err(error) = store.finish() {
        log::warn!("the recording could not be completed, but can be read: {error}");
    }
}

/// Stores an interval. If it does not fit because of the size limit, merges rows and tries again.
fn write(store: &mut Store, pending: &Unwritten) -> rusqlite::Result<()> {
    let Unwritten { interval, merged, gap } = pending;
    let result = store.write(interval, *merged, gap.as_ref());
    if result.is_ok() || !store.is_at_limit(interval) {
        return result;
    }
    while store.compact(true)? {}
    store.write(interval, *merged, gap.as_ref())
}

/// If the file is nearly full, merges old rows until the next interval arrives. After [`Writer::settle`], merges
/// nothing. Updates the size and the error in `status`.
fn compact(store: &mut Store, queue: &Queue, status: &Mutex<Status>) {
    let error = loop {
        if queue.is_settled() {
            break None;
        }
        match store.compact(false) {
            Ok(true) if queue.is_empty() => {}
            Ok(_) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    let mut status = lock(status);
    status.compaction_error = error;
    status.size = store.size().unwrap_or(status.size);
}

/// Intervals that are not stored yet, merged into one.
struct Unwritten {
    interval: Interval,
    merged: u64,
    gap: Option<Gap>,
}

impl Unwritten {
    fn after(earlier: Option<Self>, interval: Interval) -> Self {
        match earlier {
            None => Self { interval, merged: 1, gap: None },
            Some(mut earlier) => {
                earlier.interval.merge(interval);
                earlier.merged += 1;
                earlier
            }
        }
    }

    /// Records that the intervals could not be stored. The gap covers all of them, and keeps the reason of the first
    /// failure.
    fn fail(&mut self, reason: GapReason) {
        let reason = self.gap.as_ref().map_or(reason, |gap| gap.reason);
        self.gap = Some(Gap { span: self.interval.span.clone(), reason, intervals: self.merged });
    }
}

/// Returns the reason for the gap that an error causes. `is_at_limit`: true if the file has reached its size limit.
fn gap_reason(error: &rusqlite::Error, is_at_limit: bool) -> GapReason {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) if is_at_limit => GapReason::SizeLimit,
        Some(ErrorCode::DiskFull) => GapReason::DiskFull,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => GapReason::Locked,
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::ReadOnly) => GapReason::InputOutput,
        _ => GapReason::Other,
    }
}
