//! Code locations: objects, call paths, and names.

use std::path::PathBuf;

use crate::model::{BuildId, Frame, Unnamed};

/// Number of an object. The sender assigns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectNumber(pub u32);

/// Number of a call path. The sender assigns it, and may use several numbers for the same path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathNumber(pub u32);

impl PathNumber {
    /// The path without calls: the parent of the outermost calls, and the path of a stack without frames.
    pub const ROOT: Self = Self(0);
}

/// An object, or another kind of code. It is sent before or together with the first path that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedObject {
    /// Its number.
    pub number: ObjectNumber,
    /// The code that it stands for.
    pub location: Location,
}

/// Kind of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Location {
    /// An ELF file. Offsets are those in the file.
    File {
        /// Path in the target's mount namespace.
        path: PathBuf,
        /// Build ID, if it has one.
        build_id: Option<BuildId>,
    },
    /// Code that was generated at run time and has a name. An offset is the number of the name, whose text is among the
    /// recorded symbols.
    Generated,
    /// Code outside of all files, which has no name for this reason. An offset is an address in the process.
    Outside(Unnamed),
}

/// A call path: the path of the callers and one more call. It is sent before or together with its first use, and after
/// its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPath {
    /// Its number, which is larger than that of its callers.
    pub number: PathNumber,
    /// Path of the callers.
    pub callers: PathNumber,
    /// Object that contains the call.
    pub object: ObjectNumber,
    /// Offset of the call in the object; `None` for code outside of files in a path of several processes.
    pub offset: Option<u64>,
    /// True if the frame was found by frame pointer.
    pub by_frame_pointer: bool,
}

/// Names at an offset of an object. They can be sent at any time after the object; later names replace earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedSymbols {
    /// The object.
    pub object: ObjectNumber,
    /// Offset, as in [`RecordedPath`].
    pub offset: Option<u64>,
    /// Frames at the offset, the outermost first. Their objects are not stored: it is `object`.
    pub frames: Box<[Frame]>,
    /// All frames belong to allocators or libraries of languages.
    pub is_library: bool,
}
