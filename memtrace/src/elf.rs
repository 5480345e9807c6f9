//! The only reader of ELF files.
//!
//! Files are read as the dynamic linker reads them: by program headers and the dynamic section. Section headers, which
//! may be stripped, are used for the full symbol table, debug information and `.eh_frame`.
//!
//! A file is not trusted: every count and size in it is checked against a bound before memory is allocated, and every
//! read is checked against the file's end. Files are read, not mapped: truncating a mapped file would kill memtrace
//! with SIGBUS.

mod code;
pub(crate) mod constants;
pub(crate) mod dynamic_symbols;
mod error;
mod file;
pub(crate) mod function_starts;
pub(crate) mod imports;
mod machine;
pub(crate) mod notes;
pub(crate) mod relocations;
mod runtime;
mod sections;
mod segment;
mod source;
pub(crate) mod symbol_table;
pub(crate) mod thread_locals;
pub(crate) mod user_probes;

pub(crate) use dynamic_symbols::{Symbol, SymbolKind};
pub(crate) use error::ElfError;
pub(crate) use file::Elf;
pub(crate) use machine::Machine;
pub(crate) use runtime::{is_go, is_stripped};
pub(crate) use sections::Sections;
pub(crate) use segment::{Segment, variables_from, virt_offset};
pub(crate) use source::Source;
pub(crate) use thread_locals::ThreadPointerSlot;
