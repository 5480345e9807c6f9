//! Which processes are traced, what they have mapped, and which allocators they carry.
//!
//! This room alone knows `/proc` and ELF. [`inspect`] looks at a process, [`read_image`] at its mappings through
//! [`Objects`], which keeps every file open that a symbol may come from; [`survey`] finds the allocators in them.

mod allocators;
mod elf;
mod error;
mod maps;
mod objects;
mod pidfd;
mod process;
#[cfg(test)]
mod scratch;

pub use allocators::{Allocator, FoundFunction, Kind, LookedAt, SkipReason, Skipped, Survey, Verdict, survey};
pub use elf::ElfError;
pub use error::TargetError;
pub use maps::read_image;
pub use objects::Objects;
pub use process::{Process, inspect};
