//! Unwind tables during a run: prepared before events count, and built on request.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_host::kernel::Kernel;
use memtrace_host::kernel::stack_copies::StackCopy;
use memtrace_host::kernel::unwind_maps::{TableRequest, TableRequestReader};
use memtrace_host::launch;
use memtrace_host::target_files::open_target_file;
use memtrace_host::unwind_tables::TableCache;
use memtrace_model::{Bytes, EndedImage, Object, ProcessImage};
use memtrace_object::eh_frame::Limits;
use tokio::sync::Notify;

use super::cut_stacks::CutStacks;
use super::publisher::TablePublisher;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::start_progress::StartProgress;
use crate::targets::finished_stacks::FinishedStacks;
use crate::targets::select::Target;
use crate::targets::select::Targets;
use crate::targets::track::ProcessTracker;

/// Number of tables that are built before events count, if rules select the targets. They are the tables of the objects
/// with the most mappings. The background thread builds the others.
const PREPARED: usize = 48;

/// Time limit at the end of a run: for cut stacks, and then again for the tables of the command's objects. In the next run, the
/// tables that are still missing are built before the command runs.
const FINISH_TIME: Duration = Duration::from_secs(10);

/// Limits of the state of unwinding in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnwindLimits {
    /// Maximum memory of the stack copies with unfinished walks.
    pub(crate) copies: Bytes,
    /// Maximum number of stack copies of running processes. Each has a stack ID of its own in the ledgers, and the other
    /// stacks need IDs too.
    pub(crate) copy_count: usize,
    /// Maximum size of the call frame information that waits to be built into unwind tables. One object can exceed it.
    pub(crate) frame_data: Bytes,
}

/// The unwind tables of a run.
pub(crate) struct UnwindTables {
    publisher: TablePublisher,
    requests: TableRequestReader,
    /// `None` if no stacks are taken.
    cut_stacks: Option<CutStacks>,
    /// File of the command to trace; `None` if the targets run already, or if no stacks are taken.
    command: Option<File>,
    /// Objects that the command and its child processes had mapped when they ended.
    used: BTreeSet<Arc<Object>>,
}

/// Maximum number of objects in `used`. Further objects of ended images are not remembered.
const MAX_USED: usize = 1024;

impl UnwindTables {
    /// Publishes the tables of the objects that the targets have mapped or may load at their start. Without
    /// `takes_stacks`, publishes no tables.
    pub(crate) fn prepare(
        target: &Target,
        takes_stacks: bool,
        kernel: &mut Kernel,
        targets: &Targets,
        tracker: &mut ProcessTracker,
        limits: UnwindLimits,
        progress: &StartProgress,
    ) -> Result<Self, Error> {
        progress.begin("building unwind tables");
        let UnwindLimits { copies: copy_memory, copy_count, frame_data } = limits;
        let maps = kernel.unwind_maps();
        let space = Limits { blobs: maps.max_blobs(), pages: maps.max_pages() };
        let mut publisher = TablePublisher::new(open_cache(), space, frame_data);
        let command = if takes_stacks { open_command(target) } else { None };
        if takes_stacks {
            publisher.publish_vdso(kernel);
            publisher.build_now(kernel, targets.objects.iter(), progress);
            if let Some(command) = &command {
                let used = tracker.open_objects(&publisher.used_objects(command));
                publisher.preload(kernel, &used, progress);
            }
            for pid in targets.family() {
                if let Some(image) = tracker.image(pid) {
                    publisher.build_now(kernel, image.objects(), progress);
                }
            }
            if matches!(target, Target::Selected { .. }) {
                let objects = tracker.objects_by_use();
                let (first, others) = objects.split_at(objects.len().min(PREPARED));
                publisher.build_now(kernel, first.iter(), progress);
                publisher.prefetch(kernel, others);
            }
        }
        let requests = kernel.take_table_requests().map_err(|error| from_engines::kernel(None, error))?;
        // Without stacks, the reader of copies is not taken: the map that it reads has to stay open for BPF programs
        // that are loaded later.
        let copies = takes_stacks.then(|| kernel.take_stack_copies()).transpose();
        let cut_stacks = copies.map_err(|error| from_engines::kernel(None, error))?;
        let cut_stacks = cut_stacks.map(|reader| CutStacks::start(reader, copy_memory, copy_count, publisher.ready()));
        Ok(Self { publisher, requests, cut_stacks, command, used: BTreeSet::new() })
    }

    /// Reads the last stack copies. No BPF program may be running.
    pub(crate) fn stop(&mut self) {
        if let Some(stacks) = &mut self.cut_stacks {
            stacks.stop();
        }
    }

    /// Finishes the walks of cut stacks, and returns the finished stacks. Prepares the cache for the next run of the
    /// command: records the objects that the command and its child processes have mapped, and stores their tables.
    pub(crate) fn finish(&mut self, kernel: &mut Kernel, tracker: &ProcessTracker) -> FinishedStacks {
        let deadline = Instant::now() + FINISH_TIME;
        while self.cut_stacks.as_ref().is_some_and(CutStacks::is_ready)
            || self.cut_stacks.as_ref().is_some_and(CutStacks::is_waiting)
                && self.publisher.wait_for_one(kernel, deadline)
        {
            self.finish_walks(kernel, tracker, Vec::new());
            self.evict(kernel, tracker, &HashSet::new());
        }
        if let Some(command) = &self.command {
            let mut objects = std::mem::take(&mut self.used);
            tracker.images().values().for_each(|image| objects.extend(image.objects().cloned()));
            let objects: Vec<_> = objects.into_iter().collect();
            self.publisher.record_used_objects(command, objects.iter().map(|object| object.path.as_path()));
            self.publisher.wait_for(kernel, &objects, Instant::now() + FINISH_TIME);
        }
        self.cut_stacks.take().map_or_else(FinishedStacks::default, CutStacks::into_finished)
    }

    /// Returns the descriptor that becomes readable with each request.
    pub(crate) fn requests_fd(&self) -> RawFd {
        self.requests.as_raw_fd()
    }

    /// Returns the notification of new tables and stack copies.
    pub(crate) fn ready(&self) -> Arc<Notify> {
        self.publisher.ready()
    }

    /// Returns the stack copies since the last call. The caller polls the mmap events, and then passes the copies to
    /// [`Self::finish_walks`].
    pub(crate) fn stack_copies(&mut self) -> Vec<StackCopy> {
        self.cut_stacks.as_ref().map_or_else(Vec::new, CutStacks::take)
    }

    /// Finishes the walks of `copies`, and of earlier copies, if the missing tables exist by now. Queues the tables
    /// that are still missing for the background thread.
    pub(crate) fn finish_walks(&mut self, kernel: &mut Kernel, tracker: &ProcessTracker, copies: Vec<StackCopy>) {
        if let Some(stacks) = &mut self.cut_stacks {
            let missing = stacks.finish_walks(copies, kernel, self.publisher.tables(), tracker);
            if stacks.is_ready() {
                self.publisher.ready().notify_one();
            }
            self.publisher.prefetch(kernel, &missing);
        }
    }

    /// Returns true if no stack of an image that has ended waits to be finished in user space. `age`: time since the end
    /// of the image, or less.
    pub(crate) fn completes(&self, image: &EndedImage, age: Duration) -> bool {
        self.cut_stacks.as_ref().is_none_or(|stacks| stacks.completes(image, age))
    }

    /// Returns true if all stack copies that are older than `age` were read.
    pub(crate) fn has_read_copies(&self, age: Duration) -> bool {
        self.cut_stacks.as_ref().is_none_or(|stacks| stacks.has_read(age))
    }

    /// Returns the stacks that were finished in user space so far.
    pub(crate) fn finished_stacks(&self) -> Option<&FinishedStacks> {
        self.cut_stacks.as_ref().map(CutStacks::finished)
    }

    /// Replaces the IDs of stack copies in an ended image by the IDs of the finished stacks.
    pub(crate) fn apply_to_ended(&mut self, image: &mut EndedImage) {
        if let Some(stacks) = &mut self.cut_stacks {
            stacks.apply_to_ended(image);
        }
    }

    /// Remembers the objects of an image that has ended, for the next run of the command.
    pub(crate) fn remember_objects(&mut self, image: &ProcessImage) {
        if self.command.is_some() {
            self.used.extend(image.objects().take(MAX_USED.saturating_sub(self.used.len())).cloned());
        }
    }

    /// Answers the table requests of the BPF programs, and publishes the tables that were built since the last call.
    pub(crate) fn serve(&mut self, kernel: &mut Kernel, tracker: &mut ProcessTracker) {
        let mut requests = Vec::new();
        self.requests.drain(|request| requests.push(request));
        for TableRequest { object, pid, range } in requests {
            let mapped = tracker.mapped_object(pid, range);
            // The table of the executable is built while memtrace searches for the libraries of the executable. The
            // dynamic loader maps these libraries next.
            self.publisher.request(kernel, object, mapped.clone());
            if let Some(executable) = mapped.filter(|_| range.is_none()) {
                let libraries = tracker.libraries(&executable);
                self.publisher.prefetch(kernel, &libraries);
            }
        }
        self.publisher.publish_built(kernel);
    }

    /// Returns true if stacks wait for tables that are in construction.
    pub(crate) fn is_waiting(&self) -> bool {
        self.cut_stacks.as_ref().is_some_and(CutStacks::is_waiting)
    }

    /// Evicts the tables of files that were closed and, if space is short, of objects that no process has mapped. All
    /// mmap events up to now must be applied.
    pub(crate) fn evict(&mut self, kernel: &mut Kernel, tracker: &ProcessTracker, closed: &HashSet<PathBuf>) {
        self.publisher.evict(kernel, closed, || tracker.idle_files());
    }
}

/// Opens the file of the command to trace. The file identifies the command in the cache.
fn open_command(target: &Target) -> Option<File> {
    let Target::Command { argv, .. } = target else { return None };
    let path = launch::path::find(argv.first()?, std::env::var_os("PATH").as_deref())?;
    open_target_file(&path).ok()
}

/// Opens the cache of unwind tables on disk. Without it, each run builds its own tables.
fn open_cache() -> Option<TableCache> {
    // SAFETY: the call only reads the process' credentials.
    let user = unsafe { libc::geteuid() };
    let folder = TableCache::directory(|name| std::env::var_os(name))?;
    match TableCache::open(&folder, user) {
        Ok(cache) => Some(cache),
        Err(error) => {
            log::debug!("no cache of unwind tables: {error}");
            None
        }
    }
}
