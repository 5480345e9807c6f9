//! Memory reclaim: stalls, activity of the machine, pressure and OOM kills.

mod kind;
mod latencies;
mod machine;
mod memcg;
mod order;
mod per_second;
mod pressure;
mod stall;
mod stall_totals;
mod vm_counters;

pub use kind::ReclaimKind;
pub use latencies::Latencies;
pub use machine::{KernelThread, MachineReclaim, ReclaimActivity};
pub use memcg::{MemcgMemory, MemcgProfile};
pub use order::{Order, Orders};
pub use per_second::{Assessment, PerSecond};
pub use pressure::{Pressure, PressureTime, Stalled};
pub use stall::{Stall, StallKey, StallStats};
pub use stall_totals::StallTotals;
pub use vm_counters::VmCounters;

use crate::{CgroupId, ImageId, Pid, Tick};

/// A process killed by the OOM killer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OomKill {
    /// Time of the kill.
    pub at: Tick,
    /// Image of the victim, if it is traced.
    pub victim: ImageId,
    /// Short name of the victim; empty if the kernel does not report it: older ones do so only if the victim is the
    /// allocating process.
    pub comm: String,
    /// Process with the failed allocation.
    pub by: Pid,
    /// Short name of that process.
    pub by_comm: String,
    /// Control group of the victim's memory, if known.
    pub group: Option<CgroupId>,
    /// Full control group: one of the allocating process, or an ancestor. `None` if no group was full, or if the group is not
    /// known.
    pub full: Option<CgroupId>,
}
