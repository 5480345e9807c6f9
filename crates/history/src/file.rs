//! Recordings: traces over time in an SQLite database, which stays readable if the writer is killed.
//!
//! A recording is a sequence of [`Interval`](crate::Interval)s. Each holds the changes since the previous interval,
//! so the totals at a moment are the sum of all intervals before it. `docs/recording.md` describes the tables.

mod compaction;
mod error;
mod image_merge;
mod mark_texts;
mod merge;
mod merge_step;
mod numbers;
mod performance_schema;
mod quantities;
mod queue;
mod reader;
mod schema;
mod short_threads;
mod span_removal;
mod stack_merge;
mod store;
mod text;
mod threads;
mod total_merge;
mod total_numbers;
mod usage_columns;
mod wrapping;
mod writer;

pub use error::Error;
pub use mark_texts::MarkTexts;
pub use reader::{ProcessRow, Recording, ThreadRow};
pub use threads::ThreadRecorder;
pub use writer::{Settings, Status, Writer};

#[cfg(test)]
mod tests;
