//! Functions that the user has named, and their probe sites.

use std::path::Path;

use memtrace_host::target_files::open_target_file;
use memtrace_model::FileOffset;
use memtrace_object::allocators::{self, ProbedFunction};
use memtrace_object::probe_site::Needs;
use memtrace_object::symbolize::{FunctionError, FunctionPlace, find_function};

use crate::targets::select::ProbeSite;

/// Finds the function `name` in the file `object`.
///
/// # Errors
///
/// The reason that the function is not found.
pub(super) fn find_place(object: &Path, name: &str) -> Result<FunctionPlace, FunctionError> {
    find_function(&open_target_file(object)?, name)
}

/// Returns the file offset of the instruction to probe in a function of `object`. Chooses the cheapest instruction that is
/// executed before a register in `needs` loses its value from the entry.
pub(super) fn choose(object: &Path, place: FunctionPlace, needs: Needs, probe_site: ProbeSite) -> FileOffset {
    let FunctionPlace { virt, size, offset } = place;
    let function =
        ProbedFunction { virt, size, file_offset: offset, needs, frees_block: false, signature: None, throws: false };
    let site = || allocators::entry_site(&open_target_file(object).ok()?, function);
    match probe_site {
        ProbeSite::Entry => offset,
        ProbeSite::Best | ProbeSite::Return => site().map_or(offset, |site| site.file_offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_file_is_unreadable() {
        assert!(matches!(find_place(Path::new("/nowhere"), "begin"), Err(FunctionError::Unreadable(_))));
    }
}
