//! Go programs among the targets. They need no allocator if their own heap profile can be read.

use std::sync::Arc;

use memtrace_model::{Object, Pid};
use memtrace_object::allocators::{AllocatorError, Verdict};

use crate::run_kit::error::{AllocatorUser, Error};
use crate::run_kit::go_profile::{self, GoExecutables};
use crate::targets::track::ProcessTracker;

/// Reads the heap profile of the Go program that a process runs. Returns the error if it cannot be read; `None` for other
/// programs, and if this trace reads no such profiles.
pub(super) fn examine(pid: Pid, tracker: &ProcessTracker) -> Option<Result<(), Error>> {
    let program = tracker.go_program(tracker.latest_id(pid)).filter(|_| tracker.own_profiles.are_read())?;
    Some(match go_profile::examine(pid, program) {
        Ok((version, profile)) => {
            log::debug!("process {pid}: {version}, {} stacks in its heap profile", profile.buckets.len());
            Ok(())
        }
        Err(obstacle) => Err(Error::NoProfile { target: AllocatorUser::Process(pid), reason: obstacle.text }),
    })
}

/// Examines the executable of a command for which no allocator was found. `error`: error of the search. `objects`: objects that
/// the command maps. Returns an error if the executable keeps no heap profile; `None` if it is no Go program, or if this trace
/// reads no such profiles.
pub(super) fn examine_command(
    command: AllocatorUser,
    error: &AllocatorError,
    objects: &[Arc<Object>],
    tracker: &ProcessTracker,
) -> Option<Result<(), Error>> {
    let AllocatorError::NotFound { examined } = error else { return None };
    let program = examined.iter().find(|object| object.verdict == Verdict::Go);
    let program = program.filter(|_| tracker.own_profiles.are_read())?;
    let object = objects.iter().find(|object| object.path == program.path)?;
    let result = GoExecutables::default().check(object);
    Some(result.map_err(|obstacle| Error::NoProfile { target: command, reason: obstacle.text }))
}

/// Returns true if a process runs a Go program whose own heap profile may be read.
pub(super) fn runs(pid: Pid, tracker: &ProcessTracker) -> bool {
    tracker.own_profiles.are_read() && tracker.go_program(tracker.latest_id(pid)).is_some()
}
