//! Processes that the kernel has killed for want of memory.

use super::{ImageId, Pid, Tick};

/// The kernel has killed a process, since no memory was to be found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OomKill {
    /// When.
    pub at: Tick,
    /// The program that was killed, as far as its process was followed.
    pub victim: ImageId,
    /// The victim's name; empty where the kernel does not tell, as 5.10 does not.
    pub comm: String,
    /// Who found no memory.
    pub by: Pid,
    /// Its name.
    pub by_comm: String,
}
