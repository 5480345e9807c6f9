//! Columns of stalls, and the phrases for times that tables of stalls share.

use std::time::Duration;

use super::cells;
use crate::model::format as number;
use crate::model::{Latencies, Nanoseconds, StallStats};
use crate::report::table::Column;

pub(super) fn microseconds(number: u64) -> String {
    Nanoseconds(number.saturating_mul(1000)).to_string()
}

/// Below which time so large a share of all waits stayed.
fn below(latencies: &Latencies, share: f64) -> String {
    latencies.below(share).map_or_else(|| String::from("-"), |below| format!("< {}", microseconds(below)))
}

/// The columns of how long was waited, and how often.
pub(super) fn times<'a>(books: impl Iterator<Item = &'a StallStats> + Clone) -> [Column; 2] {
    cells::stalls(books.map(|book| book.stalls))
}

/// The column of the time below which so large a share of all waits stayed.
pub(super) fn quantile<'a>(head: &'static str, books: impl Iterator<Item = &'a StallStats>, share: f64) -> Column {
    Column::numbers(head, books.map(|book| below(&book.latencies, share)))
}

/// A time with its share of all the time.
pub(super) fn pressure_time(time: Duration, duration: Duration) -> String {
    let share = if duration.is_zero() { 0.0 } else { time.as_secs_f64() / duration.as_secs_f64() };
    format!("{} ({})", number::duration(time), number::percent(share))
}
