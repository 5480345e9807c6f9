//! JIT code of a process, and the files with the names of its functions.

use std::path::PathBuf;
use std::time::Duration;

/// JIT code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedCode {
    /// Path for reading the perf map (`/tmp/perf-PID.map`), valid even after the file is deleted; or the reason that memtrace
    /// cannot use a perf map.
    pub perf_map: Result<PathBuf, NoPerfMap>,
    /// Paths of the mapped jitdump files (`jit-PID.dump`).
    pub jitdumps: Vec<PathBuf>,
    /// Time of the monotonic clock at time 0 of the stacks. jitdump files use the monotonic clock.
    pub clock_start: Duration,
    /// True if an option on the command line of the process makes JIT code keep frame pointers. HotSpot needs such an
    /// option.
    pub keeps_frame_pointers: bool,
}

/// Reason that a process has no usable perf map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPerfMap {
    /// There is no such file, or it could not be read.
    Missing,
    /// The file belongs neither to the user of the process nor to root.
    NotOwned,
    /// The path leads to something else than a regular file.
    NotRegular,
}
