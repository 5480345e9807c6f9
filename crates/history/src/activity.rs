//! Slices, events and totals of threads over time, from their steps. Pure.
//!
//! [`ActivityBuilder`] pairs the steps of a run and returns the changes of each interval. [`ActivityCollector`] adds up changes,
//! those of a run or of a recording, in bounded memory.

mod builder;
mod collector;
mod locks;
mod names;
mod threads;

pub use builder::{ActivityBuilder, SiteLabel, SpanSite};
pub use collector::ActivityCollector;
