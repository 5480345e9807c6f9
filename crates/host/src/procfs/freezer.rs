//! Freezer of control groups, version 2 (Documentation/admin-guide/cgroup-v2.rst, "Core Interface Files").

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memtrace_model::{Pid, printable};

use super::memcg_limits::find_mount;
use super::process::proc_path;
use super::undo::Undo;
use crate::procfs::kernel_files;

/// Time limit for the freeze of a group. A task in the kernel delays the freeze until the task returns to user space.
const LONGEST: Duration = Duration::from_secs(1);
/// Interval between two reads of the state while the group freezes.
const POLL: Duration = Duration::from_micros(100);

/// Shell script that thaws a group. `$0` is the group's file `cgroup.freeze`.
const THAW: &str = "echo 0 >\"$0\"";

/// Reason why a process cannot be paused.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("process {0} has exited")]
    Exited(Pid),
    #[error("cgroup version 2 is not mounted")]
    NotMounted,
    #[error("process {0} is in the root cgroup, which cannot be frozen")]
    Root(Pid),
    #[error("the cgroup {} also contains process {other}", printable(group))]
    Shared { group: PathBuf, other: Pid },
    #[error("the cgroup {} is frozen already", printable(.0))]
    Frozen(PathBuf),
    #[error("the cgroup {} was not frozen within {} s", printable(.0), LONGEST.as_secs())]
    Late(PathBuf),
    #[error("cannot freeze the cgroup {}: {source}", printable(group))]
    Failed { group: PathBuf, source: io::Error },
}

/// Control group that contains only the processes of a measurement.
#[derive(Debug)]
pub struct Freezer {
    group: PathBuf,
}

/// Frozen group. It is thawed when this value is dropped, even if memtrace is killed.
#[derive(Debug)]
pub struct FrozenGroup {
    file: PathBuf,
    _undo: Undo,
}

impl Freezer {
    /// Finds the group of a process.
    ///
    /// # Errors
    ///
    /// The process has exited or is in the root group, its group contains processes other than `own`, or cgroup
    /// version 2 is not mounted.
    pub fn of(pid: Pid, own: &[Pid]) -> Result<Self, PauseError> {
        let mounts = kernel_files::read("/proc/self/mountinfo").unwrap_or_default();
        let mount = find_mount(&mounts, "cgroup2", None).ok_or(PauseError::NotMounted)?;
        let groups = kernel_files::read_to_string(proc_path(pid, "cgroup")).map_err(|_| PauseError::Exited(pid))?;
        let path = groups.lines().find_map(|line| line.strip_prefix("0::")).ok_or(PauseError::NotMounted)?;
        let group = mount.directory(Path::new(path)).ok_or(PauseError::NotMounted)?;
        if !group.join("cgroup.freeze").exists() {
            return Err(PauseError::Root(pid));
        }
        let failed = |source| PauseError::Failed { group: group.clone(), source };
        let mut members = Vec::new();
        add_members(&group, &mut members).map_err(failed)?;
        match members.into_iter().find(|member| !own.contains(member)) {
            Some(other) => Err(PauseError::Shared { group, other }),
            None => Ok(Self { group }),
        }
    }

    /// Freezes the group, and waits until all its tasks are stopped.
    ///
    /// # Errors
    ///
    /// The group is frozen already, a task does not stop in time, or a call fails.
    pub fn freeze(&self) -> Result<FrozenGroup, PauseError> {
        let failed = |source| PauseError::Failed { group: self.group.clone(), source };
        let file = self.group.join("cgroup.freeze");
        if kernel_files::read_to_string(&file).map_err(failed)?.trim() == "1" {
            return Err(PauseError::Frozen(self.group.clone()));
        }
        // Prepare the undo first: a kill of memtrace at any later moment then thaws the group.
        let undo = Undo::at_end(THAW, file.as_os_str()).map_err(failed)?;
        let frozen = FrozenGroup { file, _undo: undo };
        fs::write(&frozen.file, "1").map_err(failed)?;
        let start = Instant::now();
        while !is_frozen(&self.group).map_err(failed)? {
            if start.elapsed() > LONGEST {
                return Err(PauseError::Late(self.group.clone()));
            }
            std::thread::sleep(POLL);
        }
        Ok(frozen)
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        // Thaw the group here, because the start of the undo script takes longer.
        if let Err(error) = fs::write(&self.file, "0") {
            log::warn!("cannot write {}: {error}", printable(&self.file));
        }
    }
}

/// Adds the processes of a group and its descendants to `members`.
fn add_members(group: &Path, members: &mut Vec<Pid>) -> io::Result<()> {
    let procs = kernel_files::read_to_string(group.join("cgroup.procs"))?;
    members.extend(procs.lines().filter_map(|line| line.parse().ok()).map(Pid));
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            add_members(&entry.path(), members)?;
        }
    }
    Ok(())
}

fn is_frozen(group: &Path) -> io::Result<bool> {
    Ok(kernel_files::read_to_string(group.join("cgroup.events"))?.lines().any(|line| line == "frozen 1"))
}
