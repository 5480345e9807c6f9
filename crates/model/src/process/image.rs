//! Process images: one executable run by one process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{AbsAddr, Cgroup, Comm, Mapping, Object, Replaced, Tick, Tid, User, Version};

/// One executable run by one process, with its mappings and metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessImage {
    /// Short name (`/proc/PID/comm`).
    pub comm: Comm,
    /// Path of the executable in the target's mount namespace, if known.
    pub exe: Option<PathBuf>,
    /// Executable mappings, ordered by address, without overlaps.
    pub mappings: Vec<Mapping>,
    /// Earlier mappings, which other mappings have replaced.
    pub replaced: Replaced,
    /// User, if known.
    pub user: Option<User>,
    /// Control group, if known.
    pub cgroup: Option<Arc<Cgroup>>,
    /// Number of threads at the last reading, if known.
    pub threads: Option<u32>,
    /// Names of threads, if they are recorded.
    pub thread_names: BTreeMap<Tid, String>,
    /// Start of the image.
    pub start: ImageStart,
    /// Kind and time of the end. An exit is the exit of the first thread; other threads may still run.
    pub ended: Option<(ImageEnd, Tick)>,
}

/// Start of a process image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageStart {
    /// The start was not seen: the image started before tracing, or the event was lost.
    #[default]
    Unseen,
    /// A fork started the process, which has copies of its parent's blocks.
    Fork(Tick),
    /// The process called exec and has new memory.
    Exec(Tick),
}

impl ImageStart {
    /// Returns the time of the start, if it was seen.
    #[must_use]
    pub const fn tick(self) -> Option<Tick> {
        match self {
            Self::Unseen => None,
            Self::Fork(tick) | Self::Exec(tick) => Some(tick),
        }
    }
}

/// End of a process image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageEnd {
    /// The process exited. Its live blocks are reported as held at exit.
    Exit,
    /// The OOM killer ended the process. Its live blocks are reported as held at exit.
    OomKill,
    /// The process called exec. Its live blocks are reported as discarded.
    Exec,
}

impl ProcessImage {
    /// Returns the mapping that contains `address`.
    #[must_use]
    pub fn mapping_at(&self, address: AbsAddr) -> Option<&Mapping> {
        self.code_below(address).filter(|mapping| address < mapping.end)
    }

    /// Returns the last executable mapping that begins at or below `address`. If a variable is at `address`, the mapping
    /// belongs to the same object, because linkers place the variables of an object after its code.
    #[must_use]
    pub fn code_below(&self, address: AbsAddr) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        self.mappings.get(after.checked_sub(1)?)
    }

    /// Returns the mapped objects, one for each mapping.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> + Clone {
        self.mappings.iter().filter_map(|mapping| mapping.object.as_ref())
    }

    /// Returns the mapping of `address` in `version`, or the current one if `version` is `None`.
    #[must_use]
    pub fn mapping_in(&self, version: Option<Version>, address: AbsAddr) -> Option<&Mapping> {
        version.map_or_else(|| self.mapping_at(address), |version| self.replaced.get(version))
    }
}
