//! Processes: identity, mappings, metadata, events and resource usage.

mod event;
mod filter;
mod id;
mod mapping;
mod metadata;
mod replaced;
mod rusage;

pub use event::{ProcessEvent, ProcessEventKind};
pub use filter::{FilterRule, ProcessAttribute};
pub use id::{ImageId, Pid, StackId, Tid};
pub use mapping::{BuildId, ImageStart, Mapping, Object, ProcessImage};
pub use metadata::{Cgroup, Container, User};
pub use replaced::{Replaced, Version};
pub use rusage::{ImageRusage, PageFaults, Rusage};
