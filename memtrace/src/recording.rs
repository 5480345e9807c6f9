//! Recordings: traces over time in an SQLite database, which stays readable if the writer is killed.
//!
//! A recording is a sequence of [`Interval`]s. Each holds what changed since the interval before it, so that the totals at
//! a moment are the sum of all intervals up to it. `docs/recording.md` describes the tables.

mod changes;
mod header;
mod interval;
mod locations;
mod processes;
mod samples;

pub use changes::{Change, Detail, DetailKind, ImageChange, ImageValue, StallChange, TotalKey};
pub use header::Header;
pub use interval::{Interval, Mark};
pub use locations::{Location, ObjectNumber, PathNumber, RecordedObject, RecordedPath, RecordedSymbols};
pub use processes::RecordedImage;
pub use samples::{Fact, FactValue, Sample, Subject};
