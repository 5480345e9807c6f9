//! State of a process in a ledger.

use memtrace_model::{ImageId, ImageRusage, ImageUsage, Owner, Stacks};

use super::image::Image;
use super::rusage::RusageBounds;

#[derive(Debug)]
pub(super) struct Process {
    /// ID of the running image.
    pub(super) id: ImageId,
    /// True if the OOM killer has selected the process.
    pub(super) is_killed: bool,
    pub(super) rusage: RusageBounds,
    /// User and cgroups, just before the end of the image.
    pub(super) owner: Option<Owner>,
    /// User that shares the room of the ledger, if it was read and is known.
    pub(super) user: Option<u32>,
    /// State of the running image; `None` before its first event.
    pub(super) image: Option<Box<Image>>,
    /// Frames of the image's stacks that this shard received.
    pub(super) stacks: Stacks,
    /// True if IDs of merged stacks of the image were removed.
    pub(super) has_forgotten: bool,
}

impl Process {
    /// Creates the state of a process before the first event of its image.
    pub(super) fn new(id: ImageId) -> Self {
        let (rusage, stacks) = (RusageBounds::default(), Stacks::default());
        Self { id, is_killed: false, rusage, owner: None, user: None, image: None, stacks, has_forgotten: false }
    }

    /// Returns the page usage of the running image; `None` if it has neither pages nor a rusage.
    pub(super) fn page_usage(&self) -> Option<ImageUsage> {
        let image = self.image.as_ref();
        let pages = image.and_then(|image| image.pages.as_ref()).map(|pages| pages.usage(None));
        if pages.is_none() && self.rusage.begin.is_none() {
            return None;
        }
        let counts = ImageRusage { begin: self.rusage.begin, end: None };
        Some(ImageUsage { copy_of: image.and_then(|image| image.copy_of), counts, ..pages.unwrap_or_default() })
    }
}
