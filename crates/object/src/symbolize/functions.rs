//! Functions at addresses of an object, and the interface of their finders.

use std::fmt;
use std::fs::File;

use memtrace_model::{Location, Name, Unnamed, VirtOffset};

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Demangled name; `None` if the debug information has none.
    pub name: Option<Name>,
    /// Source line of the address in this function, if it is known.
    pub location: Option<Location>,
    /// True if the function is inlined in the function before it in the list.
    pub inlined: bool,
}

/// Functions at an address: the function that contains it, then the inlined functions, outermost first. The error is
/// the reason why there are none.
pub type FunctionsAtAddress = Result<Vec<Function>, Unnamed>;

/// Open files with the names of an object's functions.
#[derive(Debug)]
pub struct NameFiles {
    /// The object.
    pub object: File,
    /// Separate debug file; `None` if the object itself has debug information, or if there is none.
    pub debug_file: Option<File>,
    /// Supplementary file that the debug information refers to by path. The finder may open no other file.
    pub supplementary: Option<File>,
    /// The kinds of names to read.
    pub reads: NamesToRead,
}

/// Kinds of names to read from [`NameFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamesToRead {
    /// True if the debug information of the object is read.
    pub object_debug_info: bool,
    /// True if the symbol tables of the object are read.
    pub object_symbols: bool,
    /// True if the debug information of the debug file is read, not only its symbol table.
    pub debug_file_debug_info: bool,
}

impl NamesToRead {
    /// Returns true if source lines and inlined functions are wanted, not only names.
    pub(super) const fn lines(self) -> bool {
        self.object_debug_info || self.debug_file_debug_info
    }
}

/// Finds functions in files that are not trusted, perhaps in another process.
pub trait FunctionFinder: fmt::Debug + Send {
    /// Returns the functions at each of `addresses`, in the same order.
    fn find(&self, files: &NameFiles, addresses: &[VirtOffset]) -> Vec<FunctionsAtAddress>;
}
