//! Memory reclaim: stalls, activity of the machine, pressure and OOM kills.

mod kind;
mod latencies;
mod machine;
mod memcg;
mod oom_kill;
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
pub use oom_kill::OomKill;
pub use order::{Order, Orders};
pub use per_second::{Assessment, PerSecond};
pub use pressure::{Pressure, PressureTime, Stalled};
pub use stall::{Stall, StallKey, StallStats};
pub use stall_totals::StallTotals;
pub use vm_counters::VmCounters;
