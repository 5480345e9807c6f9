//! Allocators and functions that the user adds with `--allocator` and `--hook`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use memtrace_model::Function;

use super::names::UserNames;

/// Allocators and functions that the user adds. None by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserHooks {
    /// Allocators with a prefix in certain objects.
    pub allocators: Vec<NamedAllocator>,
    /// Functions that are hooked in any object.
    pub hooks: Vec<Hooks>,
}

/// Allocator with a prefix in an object: a value of `--allocator`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAllocator {
    /// Path of the object as the target sees it, its file name, or its soname.
    pub object: PathBuf,
    /// Prefix of the standard names, which may be empty.
    pub prefix: String,
}

/// Functions of one pool: a value of `--hook`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// Functions that the value names.
    pub functions: Vec<&'static Function>,
}

impl NamedAllocator {
    fn is_in(&self, path: &Path, soname: Option<&str>) -> bool {
        let object = self.object.as_os_str();
        path == self.object || path.file_name() == Some(object) || soname.map(OsStr::new) == Some(object)
    }
}

impl UserHooks {
    /// Returns the names to look up in one object.
    pub(super) fn names_in(&self, path: &Path, soname: Option<&str>) -> UserNames {
        let allocators = self.allocators.iter().filter(|allocator| allocator.is_in(path, soname));
        UserNames {
            prefixes: allocators.map(|allocator| allocator.prefix.clone()).collect(),
            functions: self.hooks.iter().flat_map(|hooks| hooks.functions.iter().copied()).collect(),
        }
    }
}
