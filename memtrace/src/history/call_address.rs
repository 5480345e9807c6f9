//! Address of a call in a process, at the time when its stack was taken.

use std::time::Duration;

use crate::model::{AbsAddr, Mapping, ProcessImage, Version, split_frame};

/// Address of a call, and the version of the mappings that applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CallAddress {
    pub(super) address: AbsAddr,
    /// The mapping, if another one has replaced it since.
    version: Option<Version>,
    /// The frame was found by frame pointer.
    pub(super) by_frame_pointer: bool,
}

impl CallAddress {
    /// Returns the call before the return address `frame` of a stack that was taken at `taken`: the byte before the
    /// return address belongs to the call.
    pub(super) fn new(image: &ProcessImage, frame: AbsAddr, taken: Duration) -> Self {
        let (frame, by_frame_pointer) = split_frame(frame);
        let address = AbsAddr(frame.0.saturating_sub(1));
        Self { address, version: image.replaced.holding(address, taken), by_frame_pointer }
    }

    /// Returns the mapping that contained the call.
    pub(super) fn mapping(self, image: &ProcessImage) -> Option<&Mapping> {
        image.mapping_in(self.version, self.address)
    }
}
