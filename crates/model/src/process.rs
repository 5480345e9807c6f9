//! Processes: identity, image, mappings, metadata, events and resource usage.

mod event;
mod filter;
mod generated_code;
mod id;
mod image;
mod mapping;
mod metadata;
mod replaced;
mod resident_set;
mod rusage;
mod untraced;

pub use event::{ProcessEvent, ProcessEventKind};
pub use filter::{FilterRule, ProcessAttribute};
pub use generated_code::{GeneratedCode, NoPerfMap};
pub use id::{CgroupId, ImageId, Pid, Tid};
pub use image::{ImageEnd, ImageStart, ProcessImage};
pub use mapping::{BuildId, Mapping, Object};
pub use metadata::{Cgroup, Container, Owner, User};
pub use replaced::{Replaced, Version};
pub use resident_set::{ResidentSet, Runtime};
pub use rusage::{ImageRusage, PageFaults, Rusage};
pub use untraced::{ProcessMemory, Untraced, UntracedProcess, UntracedReason};

/// Known properties of a process that filters compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Short name, if known.
    pub comm: Option<String>,
    /// Real user ID, if known.
    pub user: Option<u32>,
    /// Device and inode of the executable as `stat` returns them, if known.
    pub exe: Option<(u64, u64)>,
    /// Control groups of the process, and their ancestors: the kernel's id of the hierarchy, and the id of the group.
    pub cgroups: Vec<(u32, CgroupId)>,
}
