//! JIT code of a process, and the files with the names of its functions.

use std::path::PathBuf;
use std::time::Duration;

/// JIT code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedCode {
    /// Path by which memtrace reads the perf map (`/tmp/perf-PID.map`), even after the file is deleted; or the reason
    /// for which memtrace cannot use a perf map.
    pub perf_map: Result<PathBuf, NoPerfMap>,
    /// Paths of the mapped jitdump files (`jit-PID.dump`).
    pub jitdumps: Vec<PathBuf>,
    /// Time 0 of the stacks on the monotonic clock, which is the clock of jitdump files.
    pub clock_start: Duration,
    /// True if an option on the command line of the process makes JIT code keep frame pointers. HotSpot needs such an
    /// option.
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
