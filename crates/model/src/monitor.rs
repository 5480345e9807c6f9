//! Usage of threads, processes and the machine over time, without events and stacks.

mod column;
mod counter;
mod interval;
mod machine;
mod process_memory;
mod series;
mod source;
mod task_state;
mod timeline;
mod timeline_builder;
mod usage;

pub use column::ThreadColumn;
pub use counter::UsageCounter;
pub use interval::{
    MonitorEvent, MonitorEventKind, MonitorInterval, MonitoredThread, OtherThreads, ProcessInterval, ThreadInterval,
};
pub use machine::{MachineUsage, MachineValue};
pub use process_memory::{ProcessValue, ProcessValues};
pub use series::{Series, SeriesPoint};
pub use source::{CounterSource, SourceState};
pub use task_state::TaskState;
pub use timeline::{ProcessPoint, ProcessSeries, TIMELINE_POINTS, ThreadSeries, ThreadTimeline, UsagePoint};
pub use timeline_builder::TimelineBuilder;
pub use usage::ThreadUsage;
