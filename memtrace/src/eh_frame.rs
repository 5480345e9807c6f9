//! Call frame information (`.eh_frame`) to tables that the kernel half can look addresses up in.
//!
//! [`Table`] is what one object says, [`Layout`] puts tables into the blobs and pages of `memtrace_common::unwind`,
//! [`Cache`] keeps tables on disk, and [`build_all`] builds many of them in threads. Everything here is pure but
//! [`read`], which reads an object's file, and [`Cache`].
//!
//! An object is not trusted: it may be truncated, damaged or made to do harm. Work and memory are bounded by its size, and
//! the worst that its call frame information can do is to cut or falsify stacks through that object.

mod build;
mod cache;
mod code;
mod contents;
mod error;
mod frames;
mod intern;
mod layout;
mod machine;
mod merge;
mod read;
mod row;
mod rule;
mod table;

#[cfg(test)]
mod damaged;
#[cfg(test)]
mod synthetic;

pub use build::{BuildJob, Built, build_all};
pub use cache::{Cache, CacheError, directory};
pub use code::Code;
pub use error::Error;
pub use intern::Interner;
pub use layout::{Chunk, Full, Layout, Limits, Plan};
pub use read::read;
pub use row::Stats;
pub use table::Table;
