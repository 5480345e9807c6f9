//! Conversion of call frame information (`.eh_frame`, `.debug_frame`) to unwind tables for the BPF programs.
//!
//! [`Table`] has the rules of one object. [`Layout`] assigns tables to the blobs and pages of `memtrace_common::unwind`.
//! [`Descriptions`] makes single pages of a table before the table is built. `LandingPads` finds the code that a function
//! executes after an exception. Only [`ObjectContents::read`] does I/O.
//!
//! An object is not trusted: it may be truncated, damaged or hostile. Work and memory are bounded by its size, and the
//! worst effect of its call frame information is that stacks through that object are cut or wrong.

mod code;
mod contents;
mod coverage;
mod descriptions;
mod encoding;
mod entry;
mod error;
mod frames;
mod free_entries;
mod intern;
mod landing_pads;
mod layout;
mod machine;
mod merge;
mod named_code;
mod reader;
mod row;
mod rule;
mod table;

#[cfg(test)]
mod damaged;
#[cfg(test)]
mod synthetic;

pub use code::Code;
pub use contents::ObjectContents;
pub use descriptions::{Descriptions, PageRows};
pub use error::Error;
pub use intern::Interner;
pub(crate) use landing_pads::LandingPads;
pub use layout::{Chunk, Full, Layout, Limits, PagePlan, Plan};
pub use table::Table;
