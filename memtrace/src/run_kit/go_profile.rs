//! Go's own heap profile of a process: its executable and memory, or the reason why the profile cannot be read.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memtrace_host::go_profile::{self, GoProfile};
use memtrace_model::{Mapping, Object, Pid, UntracedReason};
use memtrace_object::elf::ElfError;
use memtrace_object::go::{GoExecutable, GoRefusal, HeapProfile, ProfileError, ProfileRequest};

/// Maximum number of stacks of a profile that is read once, without the limits of a trace.
const MOST_STACKS: usize = 1 << 18;

/// Reason why the heap profile of a Go program is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoObstacle {
    pub(crate) reason: UntracedReason,
    /// The reason as a clause: `the program does not import runtime/pprof`.
    pub(crate) text: String,
    /// False if another reading can succeed.
    pub(crate) is_final: bool,
}

impl From<GoRefusal> for GoObstacle {
    fn from(refusal: GoRefusal) -> Self {
        let reason = match refusal {
            GoRefusal::Elf(ElfError::Io(error)) => return error.into(),
            GoRefusal::Elf(_) => UntracedReason::GoUnreadable,
            GoRefusal::NotGo | GoRefusal::Version(_) | GoRefusal::NoFunctionTable | GoRefusal::NoVariable(_) => {
                UntracedReason::GoVersion
            }
        };
        Self { reason, text: refusal.to_string(), is_final: true }
    }
}

impl From<&ProfileError> for GoObstacle {
    fn from(error: &ProfileError) -> Self {
        let reason = if error.is_off() { UntracedReason::GoProfileOff } else { UntracedReason::GoUnreadable };
        Self { reason, text: error.to_string(), is_final: matches!(error, ProfileError::NotImported) }
    }
}

impl From<io::Error> for GoObstacle {
    fn from(error: io::Error) -> Self {
        Self {
            reason: UntracedReason::GoUnreadable,
            text: format!("its executable or memory cannot be read: {error}"),
            is_final: error.kind() != io::ErrorKind::TimedOut,
        }
    }
}

/// Result of the examination of a file.
type Examined = OnceLock<Result<Arc<GoExecutable>, GoObstacle>>;

/// Executables of Go programs. Each file is examined once.
#[derive(Debug, Default)]
pub(crate) struct GoExecutables(Mutex<HashMap<PathBuf, Arc<Examined>>>);

impl GoExecutables {
    /// Returns the executable in the file of `object`.
    fn get(&self, object: &Object) -> Result<Arc<GoExecutable>, GoObstacle> {
        let handle = object.handle.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        self.get_or_examine(handle, || {
            let executable = go_profile::examine(object, |file| GoExecutable::read(file))?;
            match executable.keeps_profile() {
                true => Ok(Arc::new(executable)),
                false => Err(GoObstacle {
                    reason: UntracedReason::GoProfileOff,
                    text: String::from("the program does not import runtime/pprof, so that it keeps none"),
                    is_final: true,
                }),
            }
        })
    }

    /// Returns the executable with this handle. If another thread examines the file, waits for it. A file that was not read in
    /// time is examined again by the next call.
    fn get_or_examine(
        &self,
        handle: &Path,
        examine: impl FnOnce() -> Result<Arc<GoExecutable>, GoObstacle>,
    ) -> Result<Arc<GoExecutable>, GoObstacle> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let examined = Arc::clone(all.entry(handle.to_owned()).or_default());
        drop(all);
        let result = examined.get_or_init(examine).clone();
        if result.as_ref().is_err_and(|obstacle| !obstacle.is_final) {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.get(handle).is_some_and(|known| Arc::ptr_eq(known, &examined)) {
                all.remove(handle);
            }
        }
        result
    }

    /// Returns the reason why the program in the file of `object` keeps no heap profile that can be read.
    pub(crate) fn check(&self, object: &Object) -> Result<(), GoObstacle> {
        self.get(object).map(drop)
    }

    /// Forgets files that were closed. Their handles can belong to other files afterwards.
    pub(crate) fn forget(&self, closed: &HashSet<PathBuf>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|handle, _| !closed.contains(handle));
    }

    /// Finds the heap profile of the process `pid`. `mapping`: a mapping of its executable.
    pub(crate) fn open(&self, pid: Pid, mapping: &Mapping) -> Result<GoProfile, GoObstacle> {
        let object = mapping.object.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(GoProfile::open(pid, mapping, self.get(object)?)?)
    }
}

/// Reads the heap profile of a process once. `mapping`: a mapping of its executable. Returns it with the version of Go.
pub(crate) fn examine(pid: Pid, mapping: &Mapping) -> Result<(String, HeapProfile), GoObstacle> {
    let executables = GoExecutables::default();
    let profile = executables.open(pid, mapping)?;
    let version = match &mapping.object {
        Some(object) => executables.get(object)?.version().to_string(),
        None => String::new(),
    };
    let request = ProfileRequest { known: 0, most: MOST_STACKS, with_unpublished: false };
    let read = profile.read(None, request).map_err(|error| GoObstacle::from(&error))?;
    // `None` does not occur: without a known number of collections, the profile is always read.
    read.map(|profile| (version, profile)).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacle_has_the_reason_of_its_error() {
        let of_refusal = |refusal: GoRefusal| GoObstacle::from(refusal).reason;
        assert_eq!(of_refusal(GoRefusal::Version(String::from("go1.18"))), UntracedReason::GoVersion);
        assert_eq!(of_refusal(GoRefusal::NotGo), UntracedReason::GoVersion);
        let of_error = |error: ProfileError| GoObstacle::from(&error).reason;
        assert_eq!(of_error(ProfileError::RateIsZero), UntracedReason::GoProfileOff);
        assert_eq!(of_error(ProfileError::Memory(io::ErrorKind::TimedOut.into())), UntracedReason::GoUnreadable);
    }

    #[test]
    fn only_a_file_that_was_not_read_in_time_can_be_read_later() {
        let is_final = |kind: io::ErrorKind| GoObstacle::from(GoRefusal::Elf(ElfError::Io(kind.into()))).is_final;
        assert_eq!([io::ErrorKind::TimedOut, io::ErrorKind::PermissionDenied].map(is_final), [false, true]);
        assert!(GoObstacle::from(GoRefusal::NotGo).is_final && GoObstacle::from(&ProfileError::NotImported).is_final);
        assert!(!GoObstacle::from(&ProfileError::Cycle).is_final);
    }

    #[test]
    fn file_without_a_handle_is_unreadable() {
        let object = Object { path: "/bin/server".into(), handle: None, build_id: None, root: None };
        let obstacle = GoExecutables::default().get(&object).unwrap_err();
        assert_eq!(obstacle.reason, UntracedReason::GoUnreadable);
    }

    #[test]
    fn file_that_was_not_read_in_time_is_examined_again() {
        let executables = GoExecutables::default();
        let get = |obstacle: GoObstacle| {
            let mut is_examined = false;
            let result = executables.get_or_examine(Path::new("/proc/self/fd/7"), || {
                is_examined = true;
                Err(obstacle)
            });
            (result.unwrap_err().reason, is_examined)
        };
        let late = || GoObstacle::from(io::Error::from(io::ErrorKind::TimedOut));
        assert_eq!([get(late()), get(late())], [(UntracedReason::GoUnreadable, true); 2]);
        let not_go = || GoObstacle::from(GoRefusal::NotGo);
        assert_eq!([get(not_go()).1, get(not_go()).1, get(late()).1], [true, false, false]);
    }

    #[test]
    fn program_that_is_not_go_is_examined_once() {
        let handle = PathBuf::from("/proc/self/exe");
        let object = Object { path: "/bin/server".into(), handle: Some(handle.clone()), build_id: None, root: None };
        let executables = GoExecutables::default();
        let first = executables.get(&object).unwrap_err();
        assert_eq!((first.reason, executables.get(&object).unwrap_err()), (UntracedReason::GoVersion, first.clone()));
        executables.forget(&HashSet::from([handle]));
        assert!(executables.0.lock().unwrap().is_empty());
    }
}
