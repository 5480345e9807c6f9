//! Where a frame lies.

use std::time::Duration;

use crate::model::{AbsAddr, Mapping, ProcessImage, Version};

/// A frame's address in an image, while one mapping held there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Spot {
    frame: AbsAddr,
    /// The mapping, where another has replaced it since.
    version: Option<Version>,
}

impl Spot {
    /// Of a frame at `frame` in a stack that was taken at `taken`.
    pub(super) fn of(image: &ProcessImage, frame: AbsAddr, taken: Duration) -> Self {
        Self { frame, version: image.replaced.holding(call(frame), taken) }
    }

    /// The address of the call: the byte before the one that it returns to is in it.
    pub(super) const fn call(self) -> AbsAddr {
        call(self.frame)
    }

    /// What was mapped there.
    pub(super) fn mapping(self, image: &ProcessImage) -> Option<&Mapping> {
        image.mapping_in(self.version, self.call())
    }
}

const fn call(address: AbsAddr) -> AbsAddr {
    AbsAddr(address.0.saturating_sub(1))
}
