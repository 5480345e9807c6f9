//! What users name beside what is found by itself.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::names::More;
use crate::model::Function;

/// What users name beside what is found by itself. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserHooks {
    /// Allocators by the objects that they are in.
    pub allocators: Vec<Named>,
    /// Functions, in whatever object they are defined.
    pub hooks: Vec<Hooks>,
}

/// An allocator that the user has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The object: its path as the target sees it, its file's name, or its soname.
    pub object: PathBuf,
    /// What stands before the standard names; nothing where they are as they are.
    pub prefix: String,
}

/// Functions that belong together: those of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// The functions.
    pub functions: Vec<&'static Function>,
}

impl Named {
    fn is(&self, path: &Path, soname: Option<&str>) -> bool {
        let object = self.object.as_os_str();
        path == self.object || path.file_name() == Some(object) || soname.map(OsStr::new) == Some(object)
    }
}

impl UserHooks {
    /// What is wanted of one object.
    pub(super) fn of(&self, path: &Path, soname: Option<&str>) -> More {
        let named = self.allocators.iter().filter(|named| named.is(path, soname));
        More {
            prefixes: named.map(|named| named.prefix.clone()).collect(),
            hooks: self.hooks.iter().flat_map(|hooks| hooks.functions.iter().copied()).collect(),
        }
    }
}
