//! Columns of stalls, and the phrases for times that tables of stalls share.

use std::time::Duration;

use memtrace_model::format as number;
use memtrace_model::{Latencies, Nanoseconds, StallStats};

use super::cells;
use crate::table::Column;

pub(super) fn microseconds(number: u64) -> String {
    Nanoseconds(number.saturating_mul(1000)).to_string()
}

/// Returns the quantile of the durations: `< 1.02 ms` if at least this share of the stalls is shorter.
fn below(latencies: &Latencies, share: f64) -> String {
    latencies.below(share).map_or_else(|| String::from("-"), |below| format!("< {}", microseconds(below)))
}

/// Returns the columns for the time and the number of stalls.
pub(super) fn times<'a>(stats: impl Iterator<Item = &'a StallStats> + Clone) -> [Column; 2] {
    cells::stalls(stats.map(|stats| stats.stalls))
}

/// Returns the column of a quantile of the durations of stalls.
pub(super) fn quantile<'a>(head: &'static str, stats: impl Iterator<Item = &'a StallStats>, share: f64) -> Column {
    Column::numbers(head, stats.map(|stats| below(&stats.latencies, share)))
}

/// Returns a time of pressure with its share of `duration`: `1.5 s (2.5%)`.
pub(super) fn pressure_time(time: Duration, duration: Duration) -> String {
    let share = if duration.is_zero() { 0.0 } else { time.as_secs_f64() / duration.as_secs_f64() };
    format!("{} ({})", number::duration(time), number::percent(share))
}
