//! Locations of calls, in a form that memtrace and another unwinder share.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Frame, Stack};

/// Location of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallSite {
    /// Address of the call in an object, in the address space of the object's symbols.
    InObject(PathBuf, u64),
    /// Address outside of all objects.
    Address(u64),
}

impl CallSite {
    /// Returns a call site in the object at `path`, which may be a symbolic link.
    #[must_use]
    pub fn in_object(path: &Path, offset: u64) -> Self {
        // `[vdso]` is not a file.
        Self::InObject(path.canonicalize().unwrap_or_else(|_| path.to_owned()), offset)
    }

    /// Returns true if the call is in the object at `path`.
    #[must_use]
    pub fn is_in(&self, path: &Path) -> bool {
        matches!(self, Self::InObject(object, _) if object == path)
    }
}

impl From<&Frame> for CallSite {
    fn from(frame: &Frame) -> Self {
        match (&frame.object, frame.offset, frame.address) {
            (Some(object), Some(offset), _) => Self::in_object(Path::new(&**object), offset),
            (None, _, Some(address)) => Self::Address(address),
            _ => panic!("a frame has neither object and offset nor address: {frame:?}"),
        }
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InObject(object, offset) => write!(out, "{}+{offset:#x}", object.display()),
            Self::Address(address) => write!(out, "{address:#x}"),
        }
    }
}

impl Stack {
    /// Returns the call sites of the stack from leaf to root, without inlined calls.
    #[must_use]
    pub fn call_sites(&self) -> Vec<CallSite> {
        self.frames.iter().rev().filter(|frame| !frame.inlined).map(|frame| CallSite::from(&**frame)).collect()
    }
}
