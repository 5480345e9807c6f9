//! Search for debug files after the trace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use memtrace_host::debuginfod::{self, Servers, Settings, Step};
use memtrace_model::{BuildId, DebugFileCounts, DebugFileOutcome, PathObject, format};
use memtrace_object::symbolize::Symbolizer;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::run_kit::error::Error;
use crate::run_kit::event_loop::Signals;
use crate::run_kit::observer::Observer;

/// Time limit for a stopped download to remove its incomplete file.
const STOP: Duration = Duration::from_millis(200);

/// Interval between two displays of the progress.
const SHOW: Duration = Duration::from_millis(100);

/// Reads the settings, and creates the cache directory; `None` if no server is to be contacted.
pub(super) fn settings(servers: &Servers) -> Result<Option<Settings>, Error> {
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    let settings = Settings::read(servers, user, |name| std::env::var_os(name)).map_err(|error| error.to_string());
    let usable = settings.and_then(|settings| {
        settings
            .as_ref()
            .map_or(Ok(()), debuginfod::prepare)
            .map_err(|error| format!("{error}; see DEBUGINFOD_CACHE_PATH"))?;
        Ok(settings)
    });
    match usable {
        // The environment variable may be set for all users of the machine, so an error in it must not prevent a trace.
        Err(error) if *servers == Servers::Environment => {
            log::warn!("debug files are not downloaded: {error}");
            Ok(None)
        }
        usable => usable.map_err(Error::Failed),
    }
}

/// Finds the debug files of `objects`, and adds them to `symbolizer`.
pub(super) async fn find(
    settings: &Settings,
    symbolizer: &mut Symbolizer,
    objects: &[PathObject],
    signals: &mut Signals,
    observer: &mut dyn Observer,
) -> DebugFileCounts {
    let wanted = symbolizer.objects_without_debug_info(objects);
    let mut search = Search { wanted, next: 1, finished: 0, counts: DebugFileCounts::default() };
    if search.wanted.is_empty() {
        return search.counts;
    }
    let objects = format::counted(search.wanted.len() as u64, "object", "objects");
    observer.note(&format!("looking for the debug files of {objects} on {}", settings.servers.join(", ")));
    let (sender, mut steps) = unbounded_channel();
    let stopped = Arc::new(AtomicBool::new(false));
    let (settings, build_ids) = (settings.clone(), search.wanted.keys().cloned().collect::<Vec<_>>());
    let is_stopped = Arc::clone(&stopped);
    // A blocked read can outlast a signal, so nothing joins the thread.
    let thread = thread::Builder::new().name(String::from("debuginfod")).spawn(move || {
        let proceed = |step| sender.send(step).is_ok() && !is_stopped.load(Ordering::Relaxed);
        debuginfod::find(&settings, &build_ids, &proceed).inspect_err(|error| log::warn!("{error}"))
    });
    if let Err(error) = thread {
        log::warn!("cannot start a thread for debug files: {error}");
    }
    tokio::select! {
        () = search.follow(&mut steps, symbolizer, observer) => {}
        () = signals.any() => {
            stopped.store(true, Ordering::Relaxed);
        }
    }
    // The end of the thread closes the channel and ends the wait.
    let _ = timeout(STOP, search.follow(&mut steps, symbolizer, observer)).await;
    search.into_counts()
}

/// State of the search.
struct Search {
    /// Paths of the objects without debug information, by build ID.
    wanted: BTreeMap<BuildId, PathBuf>,
    /// Position of the current object among the wanted ones, from 1.
    next: usize,
    finished: usize,
    counts: DebugFileCounts,
}

impl Search {
    /// Applies the steps of the search until it ends.
    async fn follow(
        &mut self,
        steps: &mut UnboundedReceiver<Step>,
        symbolizer: &mut Symbolizer,
        observer: &mut dyn Observer,
    ) {
        let mut shown = None;
        while let Some(step) = steps.recv().await {
            match step {
                Step::Receiving { build_id, received, size } => {
                    let now = tokio::time::Instant::now();
                    if shown.is_none_or(|shown| now.duration_since(shown) >= SHOW) {
                        let object = self.wanted.get(&build_id).map_or(Path::new(""), PathBuf::as_path);
                        observer.downloading(object, self.next, self.wanted.len(), received, size);
                        shown = Some(now);
                    }
                }
                Step::Found { build_id, path, outcome, downloaded } => {
                    symbolizer.add_debug_file(build_id, path);
                    self.counts.downloaded.0 += downloaded.0;
                    self.finish(outcome);
                }
                Step::Missing { outcome, .. } => self.finish(outcome),
            }
        }
    }

    fn finish(&mut self, outcome: DebugFileOutcome) {
        self.counts.add(outcome);
        self.finished += 1;
        self.next = self.wanted.len().min(self.finished + 1);
    }

    /// Returns the counts. Objects that the search did not reach count as skipped.
    fn into_counts(mut self) -> DebugFileCounts {
        for _ in self.finished..self.wanted.len() {
            self.counts.add(DebugFileOutcome::Skipped);
        }
        self.counts
    }
}
