//! Usage of threads, processes and the machine over time, without events and stacks.

mod column;
mod counter;
mod interval;
mod machine;
mod process_memory;
mod source;
mod task_state;
mod usage;

pub use column::ThreadColumn;
pub use counter::UsageCounter;
pub use interval::{
    OtherThreads, ProcessInterval, ThreadIdentity, ThreadInterval, ThreadsEvent, ThreadsEventKind, ThreadsInterval,
};
pub use machine::{MachineUsage, MachineValue};
pub use process_memory::{ProcessValue, ProcessValues};
pub use source::{CounterSource, SourceState};
pub use task_state::TaskState;
pub use usage::ThreadUsage;
