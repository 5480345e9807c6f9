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
