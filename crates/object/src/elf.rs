//! Reader of ELF files. No other module parses them.
//!
//! Files are read as the dynamic linker reads them: by program headers and the dynamic section. Section headers may be
//! stripped. They are used only for contents that nothing else leads to, such as the symbol table and USDT notes.
//!
//! A file is not trusted: every count and size in it is checked against a bound before memory is allocated, and every
//! read is checked against the file's end. Files are read, not mapped: if a mapped file was truncated, memtrace would
//! be killed by SIGBUS.

mod code;
pub(crate) mod compiler;
pub mod constants;
pub mod dynamic_symbols;
mod error;
mod file;
pub mod function_starts;
pub mod imports;
mod machine;
pub mod notes;
pub mod relocations;
mod runtime;
mod sections;
mod segment;
mod source;
pub mod symbol_table;
pub mod thread_locals;
pub mod user_probes;

pub use dynamic_symbols::{Symbol, SymbolKind};
pub use error::ElfError;
pub use file::Elf;
pub use machine::Machine;
pub use runtime::{is_go, is_stripped};
pub use sections::Sections;
pub(crate) use segment::virt_offset;
pub use segment::{Segment, variables_from};
pub use source::Source;
pub(crate) use thread_locals::ThreadPointerSlot;
