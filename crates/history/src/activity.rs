//! Spans, events and totals of threads over time. They are made from steps of the threads, such as the begin of a call.
//! Pure.
//!
//! [`ActivityBuilder`] combines the steps of a run into spans and returns the changes of each interval.
//! [`ActivityCollector`] adds up the changes of a run or a recording, in bounded memory.

mod builder;
mod collector;
mod locks;
mod names;
mod threads;

pub use builder::{ActivityBuilder, SiteLabel, SpanSite};
pub use collector::ActivityCollector;
