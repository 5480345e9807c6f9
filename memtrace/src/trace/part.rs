//! The interface of a part of a run: one kind of observation.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_history::Fact;
use memtrace_model::{EndedImage, ImageEnd, ImageId, Object, ProcessImage, Tick};

use super::context::Context;
use super::facts::Facts;
use crate::run_kit::marks::MarkRequest;
use crate::run_kit::observer::Observer;

/// A kind of observation.
pub(super) trait Part {
    /// Called when the clock of the run has started. Adds the facts about the part that a recording
    /// stores to `facts`.
    fn start(&mut self, _context: &Context, _facts: &mut Vec<Fact>) {}

    /// Returns true if [`Self::poll`] must be called every few milliseconds.
    fn is_frequent(&self) -> bool {
        false
    }

    /// Reads new data. Called before each tick, and more often if [`Self::is_frequent`] returns true. The mmap events
    /// up to now are applied.
    fn poll(&mut self, _context: &mut Context) {}

    /// Called at each tick. The mmap events up to now are applied.
    fn tick(&mut self, _context: &mut Context, _observer: &mut dyn Observer) {}

    /// Handles a request for a mark, or returns it to the caller.
    fn mark(
        &mut self,
        request: MarkRequest,
        _context: &mut Context,
        _observer: &mut dyn Observer,
    ) -> Option<MarkRequest> {
        Some(request)
    }

    /// Completes the totals of an image that has ended, before it leaves the tracker.
    fn image_ended(&mut self, _ended: &mut EndedImage, _context: &mut Context) {}

    /// Called when an image has left the tracker.
    fn image_left(&mut self, _left: &LeftImage<'_>, _context: &mut Context) {}

    /// Returns the objects that the part refers to, each with one reference.
    fn objects(&self) -> Vec<&Arc<Object>> {
        Vec::new()
    }

    /// Forgets the handles of closed files.
    fn forget_files(&mut self, _closed: &HashSet<PathBuf>) {}

    /// Called when events no longer count, while the shards still take commands.
    fn close(&mut self, _context: &mut Context) {}

    /// Called when events no longer count, and the shards have begun to finish.
    fn stop(&mut self, _context: &mut Context) {}

    /// Reads the remaining data, and adds losses to `facts`. All mmap events up to the end of the trace are applied.
    fn read_rest(&mut self, _end: Tick, _context: &mut Context, _facts: &mut Facts) {}

    /// Completes the facts. The shards have ended, and the totals contain all processes.
    fn finish(self: Box<Self>, _context: &mut Context, _facts: &mut Facts, _observer: &mut dyn Observer) {}
}

/// An image that has left the tracker.
pub(super) struct LeftImage<'a> {
    pub(super) id: ImageId,
    pub(super) end: ImageEnd,
    pub(super) image: &'a ProcessImage,
    /// True if the process has exited, and the report lists it.
    pub(super) is_listed_exit: bool,
}
