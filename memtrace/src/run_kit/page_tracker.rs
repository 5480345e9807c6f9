//! Selection of a kernel feature that records accesses to single pages.

use std::io;

use memtrace_host::procfs::{self, PageTracker};
use memtrace_model::WorkingSetMethod;

use crate::run_kit::error::Error;

/// Advice for a kernel without the chosen tracker.
const OTHER_METHOD: &str = "use --method referenced, or a kernel with this option";

/// Opens the idle page bitmap.
///
/// # Errors
///
/// The kernel has none, or permission is missing.
pub(crate) fn idle() -> Result<PageTracker, Error> {
    PageTracker::idle().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => lacks("the idle page bitmap (CONFIG_IDLE_PAGE_TRACKING)", OTHER_METHOD),
        io::ErrorKind::PermissionDenied => Error::Permission {
            action: String::from("write the idle page bitmap"),
            capability: String::from("root, and CAP_SYS_ADMIN"),
        },
        _ => Error::Failed(format!("cannot open the idle page bitmap: {error}")),
    })
}

/// Returns the tracker that reads soft-dirty bits.
///
/// # Errors
///
/// The kernel has no soft-dirty bits.
pub(crate) fn written() -> Result<PageTracker, Error> {
    match procfs::has_soft_dirty() {
        true => Ok(PageTracker::Written),
        false => Err(lacks("soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)", OTHER_METHOD)),
    }
}

/// Returns a tracker: idle flags if possible, and otherwise soft-dirty bits.
///
/// # Errors
///
/// The kernel has neither, or permission is missing.
pub(crate) fn any() -> Result<(PageTracker, WorkingSetMethod), Error> {
    match idle() {
        Ok(tracker) => Ok((tracker, WorkingSetMethod::Idle)),
        Err(Error::Kernel { .. }) if procfs::has_soft_dirty() => Ok((PageTracker::Written, WorkingSetMethod::Written)),
        Err(Error::Kernel { .. }) => Err(lacks(
            "a way to find single pages that were touched (CONFIG_IDLE_PAGE_TRACKING or CONFIG_MEM_SOFT_DIRTY)",
            "use a kernel with one of these options; `memtrace wss` needs none of them to measure the touched memory of whole processes",
        )),
        Err(error) => Err(error),
    }
}

/// Returns the error for a missing kernel feature.
pub(crate) fn lacks(missing: &str, remedy: &str) -> Error {
    Error::Kernel { missing: missing.to_owned(), remedy: remedy.to_owned() }
}
