//! Process images: one program run by one process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::model::{AbsAddr, Cgroup, Mapping, Replaced, Tick, Tid, User, Version};

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
    pub start: ImageStart,
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

/// How an image came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageEnd {
    /// The process ended; what was live then is reported as live.
    Exit,
    /// The kernel has killed the process for want of memory; what was live then is reported as live.
    OomKill,
    /// The process runs another program; what was live then is gone, and is reported as discarded.
    Exec,
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
