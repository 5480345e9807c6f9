//! Reasons why no allocator of a process can be traced.

use std::path::PathBuf;

use memtrace_model::printable;

use super::verdict::ExaminedObject;

/// Reason why no allocator of a process can be traced.
#[derive(Debug, thiserror::Error)]
pub enum AllocatorError {
    /// No mapped object is an allocator.
    #[error("no allocator was found: no mapped object defines malloc and free; examined:{}", lines(examined))]
    NotFound {
        /// The examined objects with their verdicts.
        examined: Vec<ExaminedObject>,
    },
    /// No allocator was found, and a mapped file that may have one is damaged or unreadable.
    #[error("{}: {reason}; no other allocator was found", printable(path))]
    BadObject {
        /// The file, as the target sees it.
        path: PathBuf,
        /// Description of the damage or the read error.
        reason: String,
    },
}

fn lines(examined: &[ExaminedObject]) -> String {
    if examined.is_empty() {
        return " nothing, no file is mapped".to_owned();
    }
    examined.iter().map(|object| format!("\n  {object}")).collect()
}
