//! What a process is and has mapped, so that addresses can be given names later, even after the process has ended.

use std::path::PathBuf;
use std::sync::Arc;

use crate::model::{AbsAddr, FileOffset};

/// The hash by which a linker names an object's exact contents (`NT_GNU_BUILD_ID`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(pub Box<[u8]>);

impl std::fmt::Display for BuildId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// A file that was mapped with code in it: a program or a library.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// The path as the target sees it, for people.
    pub path: PathBuf,
    /// A path by which memtrace can open the file as long as it runs, even when the target has ended, lives in another
    /// mount namespace or has deleted the file; `None` where it could not be opened in time.
    pub handle: Option<PathBuf>,
    /// The build-id, where the object has one.
    pub build_id: Option<BuildId>,
    /// The root directory of the target's mount namespace as memtrace can reach it, for its debug information.
    pub root: Option<PathBuf>,
}

/// A range of a process' addresses that holds an object's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: AbsAddr,
    /// The address behind the last.
    pub end: AbsAddr,
    /// Where in the object's file the first address lies.
    pub offset: FileOffset,
    /// The object; `None` for code without a file (JIT).
    pub object: Option<Arc<Object>>,
}

impl Mapping {
    /// Whether `other` says the same of the addresses that both are about.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let start_in_file = |mapping: &Self| mapping.offset.0.wrapping_sub(mapping.start.0);
        self.object == other.object && (self.object.is_none() || start_in_file(self) == start_in_file(other))
    }
}
