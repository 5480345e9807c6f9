//! Debug files from debuginfod servers: the only module that opens network connections.
//!
//! A server is contacted only if the user asks for it by `--debuginfod` or `DEBUGINFOD_URLS`, and only after the trace.
//! Requests contain build IDs and nothing else of the target. The environment variables and the layout of the cache are
//! the same as for the clients of elfutils (debuginfod_find_debuginfo(3)).

mod cache;
mod download;
mod settings;

use std::path::PathBuf;

use memtrace_model::{BuildId, Bytes, DebugFileOutcome};

use self::cache::Cache;
use self::download::{Failure, Server};
use crate::cache_directory::CacheError;

pub use settings::{Servers, Settings};

/// Progress of a search for debug files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A server sends the debug file of `build_id`.
    Receiving {
        build_id: BuildId,
        /// Bytes received so far.
        received: Bytes,
        /// Size of the file, if the server reports it.
        size: Option<Bytes>,
    },
    /// The debug file of `build_id` is in the cache.
    Found { build_id: BuildId, path: PathBuf, outcome: DebugFileOutcome, downloaded: Bytes },
    /// There is no debug file for `build_id`.
    Missing { build_id: BuildId, outcome: DebugFileOutcome },
}

/// Looks for the debug files of `build_ids` in the cache and on the servers. Calls `proceed` with each step. If `proceed`
/// returns false for [`Step::Receiving`], the file is skipped. If it returns false for another step, the search ends.
///
/// # Errors
///
/// The cache directory cannot be used.
pub fn find(settings: &Settings, build_ids: &[BuildId], proceed: &dyn Fn(Step) -> bool) -> Result<(), CacheError> {
    let cache = Cache::open(&settings.cache, settings.user)?;
    let mut servers: Vec<_> = settings.servers.iter().map(|url| Server::new(url, settings)).collect();
    for build_id in build_ids.iter().cloned() {
        let step = if let Some(path) = cache.find(&build_id) {
            Step::Found { build_id, path, outcome: DebugFileOutcome::Cached, downloaded: Bytes(0) }
        } else {
            let receive = |received, size| proceed(Step::Receiving { build_id: build_id.clone(), received, size });
            match download(&cache, &mut servers, &build_id, &receive) {
                Ok((path, downloaded)) => {
                    Step::Found { build_id, path, outcome: DebugFileOutcome::Downloaded, downloaded }
                }
                Err(outcome) => Step::Missing { build_id, outcome },
            }
        };
        if !proceed(step) {
            break;
        }
    }
    Ok(())
}

/// Creates the cache directory, so that a search can use it.
///
/// # Errors
///
/// The cache directory cannot be used.
pub fn prepare(settings: &Settings) -> Result<(), CacheError> {
    Cache::open(&settings.cache, settings.user).map(drop)
}

/// Downloads a debug file from the first server that has it.
fn download(
    cache: &Cache,
    servers: &mut [Server],
    build_id: &BuildId,
    receive: &dyn Fn(Bytes, Option<Bytes>) -> bool,
) -> Result<(PathBuf, Bytes), DebugFileOutcome> {
    let mut outcome = DebugFileOutcome::NotFound;
    for server in servers {
        if !receive(Bytes(0), None) {
            return Err(DebugFileOutcome::Skipped);
        }
        match cache.add(build_id, |file| server.download(build_id, file, receive)) {
            Ok(added) => return Ok(added),
            Err(Failure::Stopped) => return Err(DebugFileOutcome::Skipped),
            Err(failure) => {
                server.report(build_id, &failure);
                // Keep the first failure: it is more useful than a later answer "not found".
                if outcome == DebugFileOutcome::NotFound {
                    outcome = failure.outcome();
                }
            }
        }
    }
    Err(outcome)
}

#[cfg(test)]
mod tests;
