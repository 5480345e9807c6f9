//! Keys of groups.

use std::path::PathBuf;
use std::sync::Arc;

use memtrace_model::{BuildId, Cgroup, Comm, ProcessImage, User};

use super::row::ImageFacts;

/// Executable and owner of the images in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupKey {
    executable: Executable,
    pub(super) user: Option<User>,
    pub(super) cgroup: Option<Arc<Cgroup>>,
}

/// Identity of an executable: the first of these values that is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Executable {
    BuildId(BuildId),
    Path(PathBuf),
    Name(Comm),
    /// All executables without a group of their own.
    Other,
}

impl GroupKey {
    pub(crate) fn of(facts: &ImageFacts) -> Self {
        let executable = match (&facts.build_id, &facts.exe) {
            (Some(build_id), _) => Executable::BuildId(build_id.clone()),
            (None, Some(path)) => Executable::Path(path.clone()),
            (None, None) => Executable::Name(facts.comm.clone()),
        };
        Self { executable, user: facts.user.clone(), cgroup: facts.cgroup.clone() }
    }

    /// Returns the key without the cgroup. If the key has no cgroup, returns the key without user and executable.
    pub(crate) fn coarser(&self) -> Self {
        match self.cgroup {
            Some(_) => Self { cgroup: None, ..self.clone() },
            None => Self { executable: Executable::Other, user: None, cgroup: None },
        }
    }

    /// Returns false for the group of all executables without a group of their own.
    pub(crate) fn has_executable(&self) -> bool {
        self.executable != Executable::Other
    }

    /// Returns an image with the executable and the owner of the group. `member`: an image of the group.
    pub(crate) fn image(&self, member: &ProcessImage) -> ProcessImage {
        let exe = member.exe.clone().filter(|_| self.has_executable());
        let comm = match &self.executable {
            Executable::Other => Comm::from("other programs"),
            Executable::BuildId(_) | Executable::Path(_) | Executable::Name(_) => member.comm.clone(),
        };
        ProcessImage { comm, exe, user: self.user.clone(), cgroup: self.cgroup.clone(), ..ProcessImage::default() }
    }
}
