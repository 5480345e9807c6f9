//! Result of the examination of one object.

use std::fmt;
use std::path::PathBuf;

use memtrace_model::printable;

use super::kind::Kinds;

/// Result of the examination of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The object has an allocator that is traced.
    Traced(Kinds),
    /// The object has an allocator, but no function for this purpose (malloc or free) can be probed.
    Unprobeable(Kinds, &'static str),
    /// The object has no allocator, because it does not define this function.
    Lacks(&'static str),
    /// The object is glibc's dynamic linker, the only user of its allocator.
    DynamicLinker,
    /// The object is a statically linked program without a symbol table.
    NoSymbols,
    /// The object was linked by Go.
    Go,
    /// The object is memtrace's executable. Its allocator is not probed, because memtrace itself would hit the
    /// probes.
    Own,
    /// The file is not an ELF file.
    NotElf,
    /// The object is for another kind of machine.
    Foreign(&'static str),
    /// The file could not be opened.
    NotOpened,
    /// The file is damaged or could not be read.
    Bad(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Traced(kinds) => write!(out, "the allocator of {kinds}"),
            Self::Unprobeable(kinds, what) => write!(out, "the allocator of {kinds}; its {what} cannot be probed"),
            Self::Lacks(function) => write!(out, "no allocator, does not define {function}"),
            Self::DynamicLinker => out.write_str("glibc's dynamic linker, the only user of its allocator"),
            Self::NoSymbols => out.write_str("statically linked and stripped: its allocator cannot be found"),
            Self::Go => out.write_str("made by Go; its heap is not traced: a return probe would break its stacks"),
            Self::Own => out.write_str(
                "memtrace's own executable: its allocator is not traced; trace a process that runs a copy of the file",
            ),
            Self::NotElf => out.write_str("not an ELF file"),
            Self::Foreign(what) => write!(out, "for another machine ({what})"),
            Self::NotOpened => out.write_str("could not be opened"),
            Self::Bad(why) => out.write_str(why),
        }
    }
}

/// An examined object with its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExaminedObject {
    /// Path of the file as the target sees it.
    pub path: PathBuf,
    /// Result of the examination.
    pub verdict: Verdict,
}

impl fmt::Display for ExaminedObject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", printable(&self.path), self.verdict)
    }
}
