//! Names of threads and locks for readers.

use std::collections::BTreeMap;

use memtrace_model::{ActiveThread, Activity, LockRow, Pid, Tid, WaitClass};

use super::escape;

/// Names of the threads and locks of an activity.
pub(super) struct ActivityNames<'a> {
    activity: &'a Activity,
    threads: BTreeMap<(Pid, Tid), &'a ActiveThread>,
}

impl<'a> ActivityNames<'a> {
    pub(super) fn new(activity: &'a Activity) -> Self {
        let threads = activity.threads.iter().map(|thread| ((thread.pid, thread.tid), thread)).collect();
        Self { activity, threads }
    }

    /// Returns the name of a thread: `worker-1 (4720)`; `None` if the thread has no activity.
    pub(super) fn thread(&self, pid: Pid, tid: Tid) -> Option<String> {
        let thread = self.threads.get(&(pid, tid))?;
        Some(format!("{} ({})", escape::visible(thread.name.raw()), tid.0))
    }

    /// Returns the name of a thread, or `thread 4720` if the thread has no activity.
    pub(super) fn any_thread(&self, pid: Pid, tid: Tid) -> String {
        self.thread(pid, tid).unwrap_or_else(|| format!("thread {}", tid.0))
    }

    /// Returns the name that the program gives a lock. For a futex, returns `join of` and the joined thread, or the
    /// name of its place.
    pub(super) fn lock(&self, lock: &LockRow) -> Option<String> {
        let name = |name: u32| self.activity.names.get(name as usize).map(|name| escape::visible(name));
        match (lock.name, lock.joined) {
            (Some(given), _) => name(given),
            (None, Some(joined)) if lock.class == WaitClass::Join => {
                Some(format!("join of {}", self.any_thread(lock.pid, joined)))
            }
            (None, _) => lock.place.and_then(name),
        }
    }

    /// Returns the name of a lock, or the address of a futex without a name.
    pub(super) fn any_lock(&self, lock: &LockRow) -> String {
        self.lock(lock).unwrap_or_else(|| format!("futex {}", lock.address))
    }
}
