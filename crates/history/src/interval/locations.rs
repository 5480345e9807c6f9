//! Code locations: objects, call paths, and names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use memtrace_model::{BuildId, Frame, ObjectName, Unnamed};

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
    /// Number of the object.
    pub number: ObjectNumber,
    /// Code that the number stands for.
    pub location: Location,
}

/// Kind of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Location {
    /// An ELF file. Offsets are file offsets.
    File {
        /// Path in the target's mount namespace.
        path: PathBuf,
        /// Build ID, if the file has one.
        build_id: Option<BuildId>,
    },
    /// Code that was generated at run time and has a name. An offset is the number of the name, and the text of the
    /// name is in the recorded symbols.
    Generated,
    /// Code outside of all files, with the reason for the missing name. An offset is an address in the process.
    Outside(Unnamed),
}

impl Location {
    /// Returns the name of the file; `None` for other code.
    pub fn file_name(&self) -> Option<ObjectName> {
        match self {
            Self::File { path, build_id } => Some(ObjectName { path: path.clone(), build_id: build_id.clone() }),
            Self::Generated | Self::Outside(_) => None,
        }
    }
}

/// A call path: the path of the callers and one more call. It is sent before or together with its first use, and after
/// its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPath {
    /// Number of the path. It is larger than the number of the callers.
    pub number: PathNumber,
    /// Path of the callers.
    pub callers: PathNumber,
    /// Object that contains the call.
    pub object: ObjectNumber,
    /// Offset of the call in the object. `None` for code outside of all files in a path that several processes share,
    /// because the addresses of these processes differ.
    pub offset: Option<u64>,
    /// True if the frame was found by frame pointer.
    pub by_frame_pointer: bool,
}

/// Names at an offset of an object. They can be sent at any time after the object; later names replace earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedSymbols {
    /// Object that contains the code.
    pub object: ObjectNumber,
    /// Offset, as in [`RecordedPath`].
    pub offset: Option<u64>,
    /// Frames at the offset, the outermost first. The object of a frame is not stored, because it is always
    /// `object`.
    pub frames: Box<[Frame]>,
    /// True if all frames belong to allocators or language libraries.
    pub is_library: bool,
}

/// Frames by object and offset, the outermost frame first.
pub type FramesByOffset = BTreeMap<(ObjectNumber, Option<u64>), Vec<Frame>>;

/// Code locations of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Locations {
    /// Objects by number.
    pub objects: BTreeMap<ObjectNumber, Location>,
    /// Call paths.
    pub paths: PathRows,
    /// Recorded frames by object and offset, the outermost frame first.
    pub symbols: FramesByOffset,
}

/// Call paths, sorted by number. The callers of a path have a smaller number than the path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathRows(pub Vec<RecordedPath>);

impl PathRows {
    /// Returns the paths in order.
    #[must_use]
    pub fn all(&self) -> &[RecordedPath] {
        &self.0
    }

    /// Adds a path, or replaces the path with the same number.
    pub fn insert(&mut self, path: RecordedPath) {
        match self.0.last().is_none_or(|last| last.number < path.number) {
            true => self.0.push(path),
            false => match self.0.binary_search_by_key(&path.number, |row| row.number) {
                Ok(index) => self.0[index] = path,
                Err(index) => self.0.insert(index, path),
            },
        }
    }

    /// Returns the index of a path, if it exists.
    #[must_use]
    pub fn position(&self, path: PathNumber) -> Option<usize> {
        // In a complete file, the numbers are consecutive and start at 1.
        let usual = (path.0 as usize).wrapping_sub(1);
        let is_usual = self.0.get(usual).is_some_and(|row| row.number == path);
        if is_usual { Some(usual) } else { self.0.binary_search_by_key(&path, |row| row.number).ok() }
    }

    /// Returns the calls of a path, the innermost first.
    pub fn calls(&self, path: PathNumber) -> impl Iterator<Item = &RecordedPath> + '_ {
        let row = |path| self.position(path).map(|index| &self.0[index]);
        std::iter::successors(row(path), move |call| row(call.callers))
    }
}
