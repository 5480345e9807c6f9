//! Finishes the walks of stacks that were cut at an object without an unwind table. As soon as the table exists, the walk
//! continues in a copy of the stack.

use std::collections::HashMap;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_host::kernel::Kernel;
use memtrace_host::kernel::stack_copies::{CodeLookup, FinishedWalk, StackCopy, StackCopyReader};
use memtrace_host::target_files::open_object;
use memtrace_model::{AbsAddr, Bytes, EndedImage, Mapping, Object, Pid, ProcessImage, Tick};
use tokio::sync::Notify;

use super::copy_thread::CopyThread;
use super::placed_tables::{PlacedCode, PlacedTables};
use crate::targets::finished_stacks::FinishedStacks;
use crate::targets::track::ProcessTracker;

/// Time limit of one call of [`CutStacks::finish_walks`]. Between two calls, the main loop processes mappings, table
/// requests and new tables.
const MAX_TIME: Duration = Duration::from_millis(10);

/// Stacks that wait for tables, and finished ones.
pub(super) struct CutStacks {
    reader: CopyThread,
    /// Copies with unfinished walks, by the handle of the object without a table.
    waiting: HashMap<PathBuf, Vec<StackCopy>>,
    /// Copies with walks that can be finished now. The newest copy is finished first: running processes need the same
    /// table pages as this copy.
    ready: Vec<StackCopy>,
    finished: FinishedStacks,
}

impl CutStacks {
    /// Starts to read copies. `memory` and `max_count`: their limits, as for [`CopyThread::start`]. `notify` is notified after
    /// copies were read.
    pub(super) fn start(reader: StackCopyReader, memory: Bytes, max_count: usize, notify: Arc<Notify>) -> Self {
        Self {
            reader: CopyThread::start(reader, memory, max_count, notify),
            waiting: HashMap::new(),
            ready: Vec::new(),
            finished: FinishedStacks::default(),
        }
    }

    /// Returns the copies that have arrived since the last call. The caller applies all mmap events up to now, and then
    /// passes the copies to [`Self::finish_walks`].
    pub(super) fn take(&self) -> Vec<StackCopy> {
        self.reader.take()
    }

    /// Finishes the walks of `new` copies, and of waiting copies if their tables exist by now. Stops after [`MAX_TIME`].
    /// Returns the objects without a table that got their first waiting copy in this call.
    pub(super) fn finish_walks(
        &mut self,
        new: Vec<StackCopy>,
        kernel: &mut Kernel,
        tables: &mut PlacedTables,
        tracker: &ProcessTracker,
    ) -> Vec<Arc<Object>> {
        let mut missing = Vec::new();
        let ready = self.waiting.extract_if(|handle, _| tables.is_placed(handle)).flat_map(|(_, copies)| copies);
        self.ready.extend(ready);
        for copy in &new {
            // Further stacks need this page too. Once the page is published, they are no longer cut there.
            if let Some(address) = copy.cut_at()
                && let Some(mapping) = Mappings::of(copy, tracker).at(address)
            {
                tables.add_page(kernel.unwind_maps(), mapping, address);
            }
        }
        self.ready.extend(new);
        let deadline = Instant::now() + MAX_TIME;
        while let Some(copy) = self.ready.pop() {
            if let Some(object) = self.finish_walk(&copy, kernel, tables, tracker)
                && let Some(handle) = &object.handle
            {
                let waiting = self.waiting.entry(handle.clone()).or_insert_with(|| {
                    missing.push(Arc::clone(&object));
                    Vec::new()
                });
                waiting.push(copy);
            } else {
                self.reader.release(&copy);
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        missing
    }

    /// Finishes a walk. If the table of an object is missing, returns the object.
    fn finish_walk(
        &mut self,
        copy: &StackCopy,
        kernel: &mut Kernel,
        tables: &mut PlacedTables,
        tracker: &ProcessTracker,
    ) -> Option<Arc<Object>> {
        let mappings = Mappings::of(copy, tracker);
        let mapping_at = |address| mappings.at(address);
        // Each iteration publishes one more page of a table.
        loop {
            let mut missing = None;
            let code_at = |address| match mapping_at(address).map_or(PlacedCode::Unknown, |at| tables.placed_code(at)) {
                PlacedCode::Mapping(mapping) => CodeLookup::Mapping(mapping),
                PlacedCode::Unknown => CodeLookup::Unknown,
                PlacedCode::Waiting(object) => {
                    missing = Some(object);
                    CodeLookup::Pending
                }
            };
            let code = |address| read_code(mapping_at(address)?, address);
            match copy.finish_walk(kernel.unwind_maps(), code_at, code) {
                FinishedWalk::Stack(id, stack) => self.finished.add(copy.pid(), copy.id(), id, *stack),
                FinishedWalk::Pending => return missing,
                FinishedWalk::PendingPage(address) => {
                    let mapping = mapping_at(address)?;
                    if tables.add_page(kernel.unwind_maps(), mapping, address) {
                        continue;
                    }
                    return mapping.object.clone();
                }
                FinishedWalk::Unknown => self.finished.add_cut(copy.pid(), copy.id(), copy.cut(), copy.taken),
            }
            return None;
        }
    }

    /// Reads the last copies. No BPF program may be running.
    pub(super) fn stop(&mut self) {
        self.reader.stop();
    }

    /// Returns true if copies wait for tables, or can be finished.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.is_ready()
    }

    /// Returns true if walks can be finished without further tables.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the finished stacks.
    pub(super) const fn finished(&self) -> &FinishedStacks {
        &self.finished
    }

    /// Returns true if all copies that are older than `age` were read.
    pub(super) fn has_read(&self, age: Duration) -> bool {
        self.reader.has_read(age)
    }

    /// Returns true if no further frames of an ended image will be known: all are known, or its copies are finished.
    /// The records of the other stacks were lost, or the ledgers have merged these stacks. `age`: time since the end of
    /// the image, or less.
    pub(super) fn completes(&self, image: &EndedImage, age: Duration) -> bool {
        // If IDs of merged stacks were forgotten, the image does not wait for copies in the ring: their IDs can be among
        // the forgotten ones.
        let has_forgotten = image.usage.iter().any(|(_, usage)| usage.has_forgotten);
        let has_read_all = || has_forgotten || self.has_read(age);
        self.finished.completes(image) || has_read_all() && !self.has_copy_of(image.id.pid, image.at)
    }

    /// Returns true if a copy of `pid` that was taken until `end` was read and is not finished.
    fn has_copy_of(&self, pid: Pid, end: Tick) -> bool {
        let is_of_image = |copy: &StackCopy| is_of(copy, pid, end);
        self.waiting.values().flatten().chain(&self.ready).any(is_of_image) || self.reader.has_any(is_of_image)
    }

    /// Replaces the IDs of copies in an ended image by the IDs of the finished stacks. Stacks that still wait for a table
    /// are cut.
    pub(super) fn apply_to_ended(&mut self, image: &mut EndedImage) {
        if !self.finished.completes(image) {
            self.cut(image.id.pid, image.at);
        }
        let forgotten = self.finished.apply_to_ended(image);
        self.reader.forget(forgotten);
    }

    /// Ends the walks of the copies of `pid` that were taken until `end`, at the frames found so far.
    fn cut(&mut self, pid: Pid, end: Tick) {
        let is_of_image = |copy: &mut StackCopy| is_of(copy, pid, end);
        let mut cut = self.reader.take_if(is_of_image);
        let lists = self.waiting.values_mut().chain([&mut self.ready]);
        cut.extend(lists.flat_map(|copies| copies.extract_if(.., is_of_image)));
        self.waiting.retain(|_, copies| !copies.is_empty());
        for copy in cut {
            self.finished.add_cut(pid, copy.id(), copy.cut(), copy.taken);
            self.reader.release(&copy);
        }
    }

    /// Returns the finished stacks. Stacks that still wait for a table are cut.
    pub(super) fn into_finished(mut self) -> FinishedStacks {
        for copy in self.waiting.drain().flat_map(|(_, copies)| copies).chain(self.ready.drain(..)) {
            self.finished.add_cut(copy.pid(), copy.id(), copy.cut(), copy.taken);
        }
        std::mem::take(&mut self.finished)
    }
}

/// Returns true if `copy` is a copy of `pid` that was taken until `end`.
fn is_of(copy: &StackCopy, pid: Pid, end: Tick) -> bool {
    copy.pid() == pid && Tick::at(copy.taken) <= end
}

/// Mappings of a process at the time of a copy.
struct Mappings<'tracker> {
    image: Option<&'tracker ProcessImage>,
    time: Duration,
}

impl<'tracker> Mappings<'tracker> {
    fn of(copy: &StackCopy, tracker: &'tracker ProcessTracker) -> Self {
        Self { image: tracker.image_at(copy.pid(), copy.taken), time: copy.taken }
    }

    fn at(&self, address: AbsAddr) -> Option<&'tracker Mapping> {
        let image = self.image?;
        image.mapping_in(image.replaced.holding(address, self.time), address)
    }
}

/// Reads eight bytes at an address of `mapping` from the object's file.
fn read_code(mapping: &Mapping, address: AbsAddr) -> Option<u64> {
    let file = open_object(mapping.object.as_ref()?).ok()?;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, mapping.offset.0 + (address.0 - mapping.start.0)).ok()?;
    Some(u64::from_ne_bytes(bytes))
}
