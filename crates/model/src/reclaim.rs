//! Memory reclaim: stalls, activity of the machine, pressure and OOM kills.

mod kind;
mod latencies;
mod machine;
mod memcg;
mod order;
mod per_second;
mod pressure;
mod stall;
mod vm_counters;

use std::ops::{AddAssign, SubAssign};

pub use kind::ReclaimKind;
pub use latencies::Latencies;
pub use machine::{KernelThread, MachineReclaim, ReclaimActivity};
pub use memcg::{MemcgMemory, MemcgProfile};
pub use order::{Order, Orders};
pub use per_second::{Assessment, PerSecond};
pub use pressure::{Pressure, PressureTime, Stalled};
pub use stall::{Stall, StallKey, StallStats};
pub use vm_counters::VmCounters;

use crate::{CgroupId, ImageId, Nanoseconds, Pid, Tick};

/// An OOM kill.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OomKill {
    /// Time of the kill.
    pub at: Tick,
    /// Image of the victim, which may be untraced.
    pub victim: ImageId,
    /// Short name of the victim; empty if the kernel does not report it. Older kernels report it only if the victim is
    /// the invoker.
    pub comm: String,
    /// Invoker: the process with the failed allocation.
    pub by: Pid,
    /// Short name of the invoking thread.
    pub by_comm: String,
    /// Memcg of the victim, if known.
    pub group: Option<CgroupId>,
    /// Full memcg: the memcg of the invoking thread, or an ancestor of this memcg; `None` if no memcg was full, or if
    /// the full memcg is not known.
    pub full: Option<CgroupId>,
}

/// Number and total time of stalls. Negative differences are stored as wrapped numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StallTotals {
    /// Number of stalls.
    pub count: u64,
    /// Total time of the stalls.
    pub time: Nanoseconds,
}

impl AddAssign for StallTotals {
    fn add_assign(&mut self, other: Self) {
        self.count = self.count.wrapping_add(other.count);
        self.time.0 = self.time.0.wrapping_add(other.time.0);
    }
}

impl SubAssign for StallTotals {
    fn sub_assign(&mut self, other: Self) {
        self.count = self.count.wrapping_sub(other.count);
        self.time.0 = self.time.0.wrapping_sub(other.time.0);
    }
}
