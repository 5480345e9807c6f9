//! Processes of a recording.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_model::{Cgroup, Comm, ImageEnd, ImageId, ImageStart, ProcessImage, Tick, Tid, User};

/// Facts of a process image. If they are known, they are sent before, or together with, the first totals of the image.
/// They are sent again if a fact changes, for example when the image ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedImage {
    /// The image.
    pub id: ImageId,
    /// Short name.
    pub comm: Comm,
    /// Path of the executable in the mount namespace of the process, if known.
    pub exe: Option<PathBuf>,
    /// User, if known.
    pub user: Option<User>,
    /// Control group, if known.
    pub cgroup: Option<Arc<Cgroup>>,
    /// Number of threads at the last read, if known.
    pub threads: Option<u32>,
    /// Names of threads, if they are recorded.
    pub thread_names: BTreeMap<Tid, String>,
    /// Start of the image.
    pub start: ImageStart,
    /// Kind and time of the end, if the image has ended.
    pub ended: Option<(ImageEnd, Tick)>,
    /// ID of the group that has the stacks of this image. If there is such a group, the image itself has only a stack
    /// with the end `merged`, which holds all of the image's totals.
    pub member_of: Option<ImageId>,
}

impl RecordedImage {
    /// Returns the facts of `image`.
    #[must_use]
    pub fn new(id: ImageId, image: &ProcessImage) -> Self {
        Self {
            id,
            comm: image.comm.clone(),
            exe: image.exe.clone(),
            user: image.user.clone(),
            cgroup: image.cgroup.clone(),
            threads: image.threads,
            thread_names: image.thread_names.clone(),
            start: image.start,
            ended: image.ended,
            member_of: None,
        }
    }
}
