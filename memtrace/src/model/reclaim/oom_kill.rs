//! Processes that the kernel has killed for want of memory.

use crate::model::{CgroupId, ImageId, Pid, Tick};

/// The kernel has killed a process, since no memory was to be found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OomKill {
    /// When.
    pub at: Tick,
    /// The program that was killed, as far as its process was followed.
    pub victim: ImageId,
    /// The victim's name; empty where the kernel does not tell, as 5.10 does not of others than who found no memory.
    pub comm: String,
    /// Who found no memory.
    pub by: Pid,
    /// Its name.
    pub by_comm: String,
    /// The control group that the victim's memory was counted in, where that is known.
    pub group: Option<CgroupId>,
    /// The control group that was full, of that of who found no memory and those above; `None` where none was, or it is not
    /// known.
    pub full: Option<CgroupId>,
}
