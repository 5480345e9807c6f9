//! Where a frame's call is, as both memtrace and an unwinder of another make can say it.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Frame, Stack};

/// Where a call is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In an object, so far from where its symbols count from.
    InObject(PathBuf, u64),
    /// At an address that is of no object.
    At(u64),
}

impl Place {
    /// Of the object at `path`, whichever of its names that is.
    #[must_use]
    pub fn in_object(path: &Path, offset: u64) -> Self {
        // The kernel's own `[vdso]` is no file.
        Self::InObject(path.canonicalize().unwrap_or_else(|_| path.to_owned()), offset)
    }

    /// Whether it is of the object at `path`.
    #[must_use]
    pub fn is_in(&self, path: &Path) -> bool {
        matches!(self, Self::InObject(object, _) if object == path)
    }

    fn of(frame: &Frame) -> Self {
        match (&frame.object, frame.offset, frame.address) {
            (Some(object), Some(offset), _) => Self::in_object(Path::new(object), offset),
            (None, _, Some(address)) => Self::At(address),
            _ => panic!("a frame that is nowhere: {frame:?}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InObject(object, offset) => write!(out, "{}+{offset:#x}", object.display()),
            Self::At(address) => write!(out, "{address:#x}"),
        }
    }
}

impl Stack {
    /// Where its calls are, from leaf to root. What was inlined is no frame of its own there.
    ///
    /// # Panics
    ///
    /// If the report tells of a frame neither object and offset nor address.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        self.frames.iter().rev().filter(|frame| !frame.inlined).map(|frame| Place::of(frame)).collect()
    }
}
