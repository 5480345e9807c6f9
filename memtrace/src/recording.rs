//! Recordings: traces over time in an SQLite database, which stays readable if the writer is killed.
//!
//! A recording is a sequence of [`Interval`]s. Each holds what changed since the interval before it, so that the totals at
//! a moment are the sum of all intervals up to it. `docs/recording.md` describes the tables.

mod accounts;
mod activity;
mod changes;
mod compaction;
mod error;
mod gap;
mod header;
mod image_merge;
mod interval;
mod locations;
mod mark_texts;
mod merge;
mod merge_step;
mod monitor;
mod numbers;
mod performance_schema;
mod processes;
mod quantities;
mod queue;
mod reader;
mod retention;
mod samples;
mod schema;
mod short_threads;
mod slice_limit;
mod slice_removal;
mod stack_merge;
mod store;
mod text;
mod threads;
mod total_merge;
mod total_numbers;
mod usage_columns;
mod writer;

pub use accounts::{AccountNames, RecordedAccount};
pub use changes::{Change, Detail, DetailKind, ImageChange, ImageValue, StallChange, TotalKey};
pub use error::Error;
pub use gap::{Gap, GapReason};
pub use header::Header;
pub use interval::{Interval, Mark};
pub use locations::{Location, ObjectNumber, PathNumber, RecordedObject, RecordedPath, RecordedSymbols};
pub use mark_texts::MarkTexts;
pub use monitor::MonitorRecorder;
pub use processes::RecordedImage;
pub use reader::{
    Boundary, FramesByOffset, ImageValues, IntervalRow, Locations, MarkRow, PathRows, ProcessRow, RecordedActivity,
    Recording, StackTotal, ThreadRow, Totals,
};
pub use samples::{Fact, FactValue, Sample, Subject};
pub use threads::{RecordedProcessUsage, RecordedThread, RecordedThreadUsage, ThreadNumber};
pub use writer::{Settings, Status, Writer};

#[cfg(test)]
mod tests;
