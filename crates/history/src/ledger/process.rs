//! State of a process in a ledger.

use memtrace_model::{ImageEnd, ImageId, ImageRusage, ImageUsage, Owner, Stacks};

use super::image::Image;
use super::rusage::RusageBounds;
use super::sharer::Sharer;

#[derive(Debug)]
pub(super) struct Process {
    /// ID of the running image.
    pub(super) id: ImageId,
    /// True if the OOM killer has selected the process.
    pub(super) is_killed: bool,
    pub(super) rusage: RusageBounds,
    /// User and cgroups, just before the end of the image.
    pub(super) owner: Option<Owner>,
    /// User of the process, if it was read and is known. Users share the room of the ledger.
    pub(super) user: Option<u32>,
    /// State of the running image; `None` before its first event.
    pub(super) image: Option<Box<Image>>,
    /// Frames of the image's stacks that this shard received.
    pub(super) stacks: Stacks,
    /// True if IDs of merged stacks of the image were removed.
    pub(super) has_forgotten: bool,
    /// Slot of the process that has the memory, if this process shares the memory of another one.
    pub(super) memory: Option<usize>,
    /// Entry in reports, if this process shares the memory of another one.
    pub(super) sharer: Option<Sharer>,
    /// Number of processes that share the memory of this one.
    pub(super) sharers: u32,
    /// End and rusage of the image, if the image has ended while other processes share its memory.
    pub(super) kept: Option<(ImageEnd, ImageRusage)>,
}

impl Process {
    /// Creates the state of a process before the first event of its image.
    pub(super) fn new(id: ImageId) -> Self {
        Self {
            id,
            is_killed: false,
            rusage: RusageBounds::default(),
            owner: None,
            user: None,
            image: None,
            stacks: Stacks::default(),
            has_forgotten: false,
            memory: None,
            sharer: None,
            sharers: 0,
            kept: None,
        }
    }

    /// Returns true if only the id of the process is known.
    pub(super) fn is_unused(&self) -> bool {
        let has_facts = self.is_killed || self.owner.is_some() || self.rusage.begin.or(self.rusage.end).is_some();
        let has_memory = self.image.is_some() || !self.stacks.is_empty() || self.memory.is_some();
        !has_facts && !has_memory && self.sharer.is_none() && self.sharers == 0
    }

    /// Returns the page usage of the running image; `None` if it has neither pages nor a rusage, or if its pages are left out.
    pub(super) fn page_usage(&self) -> Option<ImageUsage> {
        let image = self.image.as_ref();
        if image.is_some_and(|image| image.leaves_out_pages) {
            return None;
        }
        let pages = image.and_then(|image| image.pages.as_ref()).map(|pages| pages.usage(None));
        if pages.is_none() && self.rusage.begin.is_none() {
            return None;
        }
        let counts = self.kept.map_or(ImageRusage { begin: self.rusage.begin, end: None }, |(_, counts)| counts);
        Some(ImageUsage { copy_of: image.and_then(|image| image.copy_of), counts, ..pages.unwrap_or_default() })
    }
}
