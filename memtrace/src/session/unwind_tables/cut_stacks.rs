//! Stacks that were cut at an object without a table: their walks are finished in a copy once the table is there.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::copy_thread::CopyThread;
use super::publisher::{PlacedCode, TablePublisher};
use crate::kernel::Kernel;
use crate::kernel::stack_copies::{CodeLookup, FinishedWalk, StackCopy, StackCopyReader};
use crate::model::{AbsAddr, EndedImage, FinishedStacks, Mapping, Object, Pid};
use crate::session::track::ProcessTracker;

/// Stacks that wait for tables, and finished ones.
pub(super) struct CutStacks {
    reader: CopyThread,
    /// Copies that are not finished, by the handle of the object without a table.
    waiting: HashMap<PathBuf, Vec<StackCopy>>,
    finished: FinishedStacks,
}

impl CutStacks {
    pub(super) fn start(reader: StackCopyReader) -> Self {
        Self { reader: CopyThread::start(reader), waiting: HashMap::new(), finished: FinishedStacks::default() }
    }

    /// Returns the copies that have arrived since the last call, to be passed to [`Self::finish_walks`] once all mmap
    /// events before now are applied.
    pub(super) fn take(&self) -> Vec<StackCopy> {
        self.reader.take()
    }

    /// Finishes the walks of `new` copies and of those with tables that were missing. Returns the objects without a
    /// table.
    pub(super) fn finish_walks(
        &mut self,
        new: Vec<StackCopy>,
        kernel: &mut Kernel,
        publisher: &TablePublisher,
        tracker: &ProcessTracker,
    ) -> Vec<Arc<Object>> {
        let mut missing = Vec::new();
        let ready = self.waiting.extract_if(|handle, _| publisher.is_placed(handle)).flat_map(|(_, copies)| copies);
        let ready: Vec<_> = ready.chain(new).collect();
        for copy in ready {
            if let Some(object) = self.finish_walk(&copy, kernel, publisher, tracker)
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
        }
        missing
    }

    /// Finishes a walk. Returns an object if it needs the table of that.
    fn finish_walk(
        &mut self,
        copy: &StackCopy,
        kernel: &mut Kernel,
        publisher: &TablePublisher,
        tracker: &ProcessTracker,
    ) -> Option<Arc<Object>> {
        let image = tracker.image_at(copy.pid(), copy.taken);
        let mapping_at = |address| {
            let image = image?;
            image.mapping_in(image.replaced.holding(address, copy.taken), address)
        };
        let mut missing = None;
        let code_at = |address| match mapping_at(address).map_or(PlacedCode::Unknown, |at| publisher.placed_code(at)) {
            PlacedCode::Mapping(mapping) => CodeLookup::Mapping(mapping),
            PlacedCode::Unknown => CodeLookup::Unknown,
            PlacedCode::Waiting(object) => {
                missing = Some(object);
                CodeLookup::Pending
            }
        };
        let walk = copy.finish_walk(kernel.unwind_maps(), code_at, |address| read_code(mapping_at(address)?, address));
        match walk {
            FinishedWalk::Stack(id, stack) => self.finished.add(copy.pid(), copy.id(), id, *stack),
            FinishedWalk::Pending => return missing,
            FinishedWalk::Unknown => self.finished.add_cut(copy.pid(), copy.id(), copy.cut()),
        }
        None
    }

    /// Reads the last copies. No program may be running.
    pub(super) fn stop(&mut self) {
        self.reader.stop();
    }

    /// Returns true if copies wait for tables.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the processes with copies that wait for tables.
    pub(super) fn waiting_processes(&self) -> BTreeSet<Pid> {
        self.waiting.values().flatten().map(StackCopy::pid).collect()
    }

    /// Replaces the ids of copies in an image that has ended.
    pub(super) fn apply_to_ended(&mut self, image: &mut EndedImage) {
        self.finished.apply_to_ended(image);
    }

    /// Returns the stacks. Those that still wait for a table are cut.
    pub(super) fn into_finished(mut self) -> FinishedStacks {
        for copy in self.waiting.drain().flat_map(|(_, copies)| copies) {
            self.finished.add_cut(copy.pid(), copy.id(), copy.cut());
        }
        std::mem::take(&mut self.finished)
    }
}

/// Reads eight bytes at an address of `mapping` from the object's file.
fn read_code(mapping: &Mapping, address: AbsAddr) -> Option<u64> {
    let file = File::open(mapping.object.as_ref()?.handle.as_ref()?).ok()?;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, mapping.offset.0 + (address.0 - mapping.start.0)).ok()?;
    Some(u64::from_ne_bytes(bytes))
}
