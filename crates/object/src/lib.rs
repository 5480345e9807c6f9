//! Object files of traced processes: ELF, call frame information, allocators and their probe sites, code that memtrace adds to
//! them, names of functions, and the heap profile of Go programs.
//!
//! An object is not trusted: it may be truncated, damaged or hostile. Work and memory are bounded by its size.
//!
//! The crate opens no path and no connection: functions take open files or bytes, or [`ObjectFiles`]. The library blazesym
//! opens files by the paths that this crate passes to it.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod allocators;
pub mod eh_frame;
pub mod elf;
pub mod go;
mod object_files;
pub mod overlay;
pub mod probe_site;
pub mod symbolize;

pub use object_files::{ObjectFiles, checksum};
