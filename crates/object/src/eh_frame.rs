//! Conversion of call frame information (`.eh_frame`) to unwind tables for the BPF programs.
//!
//! [`Table`] has the rules of one object. [`Layout`] assigns tables to the blobs and pages of
//! `memtrace_common::unwind`.
//! [`Cache`] stores tables on disk, and [`build_all`] builds many of them in threads. [`Descriptions`] makes single
//! pages of a table before the table is built. Only [`Construction`], [`build_all`] and [`Cache`] do I/O.
//!
//! An object is not trusted: it may be truncated, damaged or hostile. Work and memory are bounded by its size, and the
//! worst effect of its call frame information is that stacks through that object are cut or wrong.

mod cache;
mod code;
mod construction;
mod contents;
mod descriptions;
mod encoding;
mod entry;
mod error;
mod frames;
mod free_entries;
mod intern;
mod layout;
mod machine;
mod merge;
mod parallel;
mod reader;
mod row;
mod rule;
mod table;

#[cfg(test)]
mod damaged;
#[cfg(test)]
mod synthetic;

pub use cache::{Cache, CacheError, directory};
pub use code::Code;
pub use construction::{Begun, Construction};
pub use contents::ObjectContents;
pub use descriptions::{Descriptions, PageRows};
pub use error::Error;
pub use intern::Interner;
pub use layout::{Chunk, Full, Layout, Limits, PagePlan, Plan};
pub use parallel::{BuildJob, Built, build_all};
pub use table::Table;
