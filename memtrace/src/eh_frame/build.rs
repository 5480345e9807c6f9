//! Many tables at once, those first that most stacks go through.

use std::cmp::Reverse;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use super::cache::Cache;
use super::error::Error;
use super::read::read;
use super::table::Table;
use crate::model::Object;

/// An object that a table is wanted of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildJob {
    /// The object.
    pub object: Arc<Object>,
    /// How many processes have mapped it.
    pub users: u32,
}

/// What came of it.
#[derive(Debug)]
pub struct Built {
    /// The object.
    pub object: Arc<Object>,
    /// Its table, or why there is none.
    pub table: Result<Table, Error>,
}

/// Builds the tables of all objects in `threads` threads, and gives each to `take` in the calling thread as soon as it is
/// there. Those that most processes use come first.
pub fn build_all(mut wanted: Vec<BuildJob>, threads: usize, cache: Option<&Cache>, mut take: impl FnMut(Built)) {
    wanted.sort_by_key(|wanted| (Reverse(wanted.users), rank(&wanted.object.path)));
    let (wanted, next) = (&wanted, &AtomicUsize::new(0));
    // A table waits for its taker before its thread goes on, so that there are never many in memory.
    let (sender, receiver) = mpsc::sync_channel(0);
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, wanted.len().max(1)) {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(BuildJob { object, .. }) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let built = Built { object: Arc::clone(object), table: build(object, cache) };
                    if sender.send(built).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for built in receiver {
            take(built);
        }
    });
}

fn build(object: &Object, cache: Option<&Cache>) -> Result<Table, Error> {
    let handle = object.handle.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let file = File::open(handle)?;
    match cache {
        Some(cache) => cache.table(&file, object.build_id.as_ref()),
        None => read(&file),
    }
}

/// Among objects that as many processes use, the C library is in every stack of an allocation, and the dynamic linker in
/// the first ones.
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
