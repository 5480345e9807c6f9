//! The stacks of a report.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use super::Frame;
use crate::totals::Totals;

/// One stack of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// Pid of the process; 0 for a stack of a group.
    pub pid: u32,
    pub totals: Totals,
    /// Frames from root to leaf.
    pub frames: Vec<Arc<Frame>>,
    /// The stack as in the report, with the indices of its frames.
    pub content: memtrace_json::Stack<'static>,
}

impl Deref for Stack {
    type Target = memtrace_json::Stack<'static>;

    fn deref(&self) -> &Self::Target {
        &self.content
    }
}

impl Stack {
    /// Resolves the frames of a stack; returns `None` if one does not exist.
    pub(super) fn new(content: memtrace_json::Stack<'static>, frames: &[Arc<Frame>]) -> Option<Self> {
        let frames = content.frames.iter().map(|&index| frames.get(index).cloned()).collect::<Option<_>>()?;
        Some(Self { pid: content.pid.unwrap_or_default(), totals: content.totals.into(), frames, content })
    }

    /// Returns the frame that called the allocator.
    #[must_use]
    pub fn leaf(&self) -> Option<&Frame> {
        self.frames.last().map(AsRef::as_ref)
    }

    /// Returns the number of frames without inlined functions.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.iter().filter(|frame| !frame.inlined).count()
    }

    /// Returns the functions of `object` from root to leaf, `?` for a function without a name.
    #[must_use]
    pub fn names_in(&self, object: &Path) -> Vec<&str> {
        let frames = self.frames.iter().filter(|frame| frame.object.as_deref() == object.to_str());
        frames.map(|frame| frame.name.as_deref().unwrap_or("?")).collect()
    }

    /// Returns the functions from root to leaf, `?` for a function without a name.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.frames.iter().map(|frame| frame.name.as_deref().unwrap_or("?")).collect()
    }
}
