//! Points that BPF programs are attached to.

use std::path::Path;

use memtrace_model::{FileOffset, Pid, printable};

use crate::procfs;

/// Processes with an active probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A single process.
    Process(Pid),
    /// Every process that maps the object, now or later.
    AllProcesses,
}

/// Instruction of an object, and the BPF cookie of the program there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AttachPoint {
    pub(super) offset: FileOffset,
    /// Value of `bpf_get_attach_cookie`.
    pub(super) cookie: Option<u64>,
    /// File offset of a 16-bit counter in the object's data. The kernel increments the counter in each process while
    /// the program is attached.
    pub(super) semaphore: Option<FileOffset>,
}

/// Returns the path of an object for messages. The handle of an open file is a link to its path.
pub(super) fn shown(path: &Path) -> String {
    printable(procfs::opened_path(path).as_deref().unwrap_or(path)).into_owned()
}
