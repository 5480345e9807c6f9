//! Memory reclaim: stalls, the activity of the machine, pressure and OOM kills.

mod machine;
mod memcg;
mod oom_kill;
mod order;
mod pressure;
mod stall;

pub use machine::{Assessment, KernelThread, MachineReclaim, PerSecond, PressureTime, ReclaimActivity, VmCounters};
pub use memcg::{CgroupId, GroupMemory, GroupProfile, StallKey};
pub use oom_kill::OomKill;
pub use order::{Order, Orders};
pub use pressure::{Pressure, Stalled};
pub use stall::{Latencies, Nanoseconds, ReclaimKind, Stall, StallStats, StallTotals};
