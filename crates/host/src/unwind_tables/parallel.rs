//! Parallel construction of many tables, the most used objects first.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use memtrace_model::Object;
use memtrace_object::eh_frame::{Error, ObjectContents, Table};

use super::table_cache::TableCache;
use crate::target_files::open_object;

/// Request to build the table of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildJob {
    /// Object of the table.
    pub object: Arc<Object>,
    /// Number of processes that have mapped the object.
    pub users: u32,
}

/// Result of a [`BuildJob`].
#[derive(Debug)]
pub struct Built {
    /// Object of the table.
    pub object: Arc<Object>,
    /// The table, or the reason why the object has none.
    pub table: Result<Table, Error>,
}

/// Builds the tables of all jobs, and passes each to `on_built` as soon as it is complete. The objects with the most users come
/// first. Up to `threads` threads build tables; if none can be started, the calling thread does. `on_built` is called in the
/// calling thread.
pub fn build_all(mut jobs: Vec<BuildJob>, threads: usize, cache: Option<&TableCache>, mut on_built: impl FnMut(Built)) {
    jobs.sort_by_key(|job| (Reverse(job.users), rank(&job.object.path)));
    let (jobs, next) = (&jobs, &AtomicUsize::new(0));
    let build_next = || {
        let BuildJob { object, .. } = jobs.get(next.fetch_add(1, Ordering::Relaxed))?;
        Some(Built { object: Arc::clone(object), table: build(object, cache) })
    };
    // A thread hands over its table before it builds the next one. This bounds the number of tables in memory.
    let (sender, receiver) = mpsc::sync_channel(0);
    thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            let sender = sender.clone();
            let started = thread::Builder::new().spawn_scoped(scope, move || {
                while let Some(built) = build_next() {
                    if sender.send(built).is_err() {
                        break;
                    }
                }
            });
            if let Err(error) = started {
                log::warn!("unwind tables take longer, because no thread can be started: {error}");
                break;
            }
        }
        drop(sender);
        receiver.into_iter().for_each(&mut on_built);
        // Jobs are left for this thread only if no other one was started.
        std::iter::from_fn(build_next).for_each(&mut on_built);
    });
}

fn build(object: &Object, cache: Option<&TableCache>) -> Result<Table, Error> {
    let file = open_object(object)?;
    match cache {
        Some(cache) => cache.table(&file, object.build_id.as_ref()),
        None => Table::build(&ObjectContents::read(&file)?),
    }
}

/// Returns the rank of an object among the ones with the same number of users; lower ranks come first. The C library is
/// in every stack of an allocation, and the dynamic linker is in the first stacks.
fn rank(path: &Path) -> u8 {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.split(['.', '-']).next() {
        Some("libc") => 0,
        Some("ld") => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests;
