//! State of the change of a process that is in progress.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Instant;

use memtrace_model::ImageId;

use super::patcher_thread::Mapped;
use super::stub_file::StubFile;

/// Change that is in progress, and its data that later changes need.
#[derive(Default)]
pub(super) struct CurrentChange {
    /// Process of the request without an answer.
    pub(super) job: Option<ImageId>,
    /// Process that is patched as soon as no process with its stub takes samples for an earlier memtrace.
    pub(super) ending: Option<(ImageId, Box<Mapped>)>,
    /// Number of rounds that restored such processes.
    pub(super) rounds: u32,
    /// File of the stub of the process, if other patched processes have the same file.
    pub(super) shared: Option<Rc<StubFile>>,
    /// Time of the last request.
    pub(super) requested: Option<Instant>,
    /// Processes that shared the stub of an earlier memtrace with a process that is patched now. They are patched too, even if
    /// they allocate little.
    pub(super) relatives: BTreeSet<ImageId>,
}

impl CurrentChange {
    /// Returns true if a process is being changed.
    pub(super) const fn is_busy(&self) -> bool {
        self.job.is_some() || self.ending.is_some()
    }
}
