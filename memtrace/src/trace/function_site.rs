//! Probe sites of functions that the user has named.

use std::fs::File;
use std::path::Path;

use memtrace_model::FileOffset;
use memtrace_object::allocators::{self, ProbedFunction};
use memtrace_object::probe_site::Needs;
use memtrace_object::symbolize::FunctionPlace;

use crate::targets::select::ProbeSite;

/// Returns the file offset of the instruction to probe in a function of `object`: the cheapest instruction at which the
/// registers in `needs` still have their values from the entry.
pub(super) fn choose(object: &Path, place: FunctionPlace, needs: Needs, probe_site: ProbeSite) -> FileOffset {
    let FunctionPlace { virt, size, offset } = place;
    let function =
        ProbedFunction { virt, size, file_offset: offset, needs, frees_block: false, signature: None, throws: false };
    let site = || allocators::entry_site(&File::open(object).ok()?, function);
    match probe_site {
        ProbeSite::Entry => offset,
        ProbeSite::Best | ProbeSite::Return => site().map_or(offset, |site| site.file_offset),
    }
}
