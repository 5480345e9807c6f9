//! What a process is and has mapped, so that addresses can be given names later, even after the process has ended.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::model::{AbsAddr, Cgroup, FileOffset, Replaced, Tick, Tid, User, Version};

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

/// What is known of one program run by one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessImage {
    /// The short name (`/proc/PID/comm`).
    pub comm: String,
    /// The program's path as the target sees it, where known.
    pub exe: Option<PathBuf>,
    /// Mappings of code, ordered by address, none overlapping another.
    pub mappings: Vec<Mapping>,
    /// What was mapped before, where something else has taken its place.
    pub replaced: Replaced,
    /// The user that it runs as, where known.
    pub user: Option<User>,
    /// The control group that it is in, where known.
    pub cgroup: Option<Arc<Cgroup>>,
    /// How many threads the process had when that was last looked at.
    pub threads: Option<u32>,
    /// The names of its threads, where they are kept.
    pub thread_names: BTreeMap<Tid, String>,
    /// How it came to be.
    pub beginning: ImageStart,
    /// When the process was heard to end.
    pub ended: Option<Tick>,
}

/// How an image came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageStart {
    /// It was not seen: before tracing began, or its notice was lost.
    #[default]
    Unseen,
    /// A process that was seen to begin as a copy of another, blocks included.
    Fork(Tick),
    /// A program that was seen to take the place of another, with memory of its own.
    Exec(Tick),
}

impl ImageStart {
    /// When that was, where it was seen.
    #[must_use]
    pub const fn tick(self) -> Option<Tick> {
        match self {
            Self::Unseen => None,
            Self::Fork(tick) | Self::Exec(tick) => Some(tick),
        }
    }
}

impl Mapping {
    /// Whether `other` says the same of the addresses that both are about.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let start_in_file = |mapping: &Self| mapping.offset.0.wrapping_sub(mapping.start.0);
        self.object == other.object && (self.object.is_none() || start_in_file(self) == start_in_file(other))
    }
}

impl ProcessImage {
    /// The mapping that holds `address`.
    #[must_use]
    pub fn mapping_at(&self, address: AbsAddr) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings.get(after.checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping)
    }

    /// The mapping that held `address` when `version` did; `None`: the one that does now.
    #[must_use]
    pub fn mapping_in(&self, version: Option<Version>, address: AbsAddr) -> Option<&Mapping> {
        version.map_or_else(|| self.mapping_at(address), |version| self.replaced.get(version))
    }
}
