//! Object of a target that a preset fits.

use std::fs::File;
use std::path::Path;

use memtrace_host::target_files::open_target_file;
use memtrace_model::{AbsAddr, Mapping, VirtOffset};
use memtrace_object::allocators::address_in;
use memtrace_object::symbolize::{find_function, find_variables_named};

use crate::options::tag_functions::{TagFunction, tag_functions};
use crate::run_kit::error::Error;

/// Object of a target, with one of its mappings.
pub(super) struct Program<'image> {
    mapping: &'image Mapping,
    handle: &'image Path,
    file: File,
}

impl<'image> Program<'image> {
    /// Opens the object of a mapping; returns `None` if it has none, or if the file cannot be read.
    pub(super) fn open(mapping: &'image Mapping) -> Option<Self> {
        let handle = mapping.object.as_ref()?.handle.as_deref()?;
        Some(Self { mapping, handle, file: open_target_file(handle).ok()? })
    }

    /// Returns true if the symbols of the object have this function.
    pub(super) fn has_function(&self, name: &str) -> bool {
        find_function(&self.file, name).is_ok()
    }

    /// Returns the address of `virt`, an address in the object, in the process.
    pub(super) fn address(&self, virt: VirtOffset) -> Option<AbsAddr> {
        address_in(self.mapping, &self.file, virt)
    }

    /// Returns the addresses in the process of the variables with this name and this size in bytes.
    pub(super) fn variables(&self, name: &str, size: u64) -> Vec<AbsAddr> {
        let found = find_variables_named(&self.file, name, size).unwrap_or_default();
        found.into_iter().filter_map(|virt| self.address(virt)).collect()
    }

    /// Returns the functions of `rules`, which are rules for this object.
    ///
    /// # Errors
    ///
    /// A rule is malformed.
    pub(super) fn functions(&self, rules: &str) -> Result<Vec<TagFunction>, Error> {
        let functions = tag_functions(rules).map_err(Error::Failed)?;
        let here = |function| TagFunction { object: Some(self.handle.to_owned()), ..function };
        Ok(functions.into_iter().map(here).collect())
    }
}
