//! Code that a process generates at run time, and the files with its names.

use std::path::PathBuf;
use std::time::Duration;

/// Code that a process generates at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedCode {
    /// memtrace reads the perf map (`/tmp/perf-PID.map`) by this path, even after the file is deleted. If memtrace cannot use
    /// a perf map, this is the reason.
    pub perf_map: Result<PathBuf, NoPerfMap>,
    /// Paths of the mapped jitdump files (`jit-PID.dump`).
    pub jitdumps: Vec<PathBuf>,
    /// Origin of stack times on the monotonic clock, which jitdump files use.
    pub clock_start: Duration,
    /// True if the generated code keeps frame pointers, as far as the command line says. HotSpot's compiled code does so
    /// on request only.
    pub keeps_frame_pointers: bool,
}

/// Reason for which a process has no perf map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPerfMap {
    /// There is no such file, or it could not be read.
    Missing,
    /// The file belongs to another user, not to the user of the process or to root.
    NotOwned,
    /// The path leads to something else than a regular file.
    NotRegular,
}
