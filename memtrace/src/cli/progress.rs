//! Progress line of a run.

use std::time::Duration;

use crate::model::{Bytes, format};

/// Formats the progress in at most `width` columns.
///
/// If the line is too long, it omits the event rate, then the time.
pub(super) fn line(elapsed: Duration, live: Bytes, events_per_s: f64, lost: u64, width: usize) -> String {
    let elapsed = format::clock(elapsed);
    let live = format!("{live} live");
    let rate = format!("{} events/s", format::compact_decimal(events_per_s.max(0.0)));
    let lost = format!("{lost} lost");
    let choices: [&[&str]; 3] = [&[&elapsed, &live, &rate, &lost], &[&elapsed, &live, &lost], &[&live, &lost]];
    let lines = choices.map(|parts| parts.join("  "));
    let fitting = lines.iter().find(|line| line.len() <= width);
    fitting.cloned().unwrap_or_else(|| lines[2].chars().take(width).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_shows_time_live_bytes_rate_and_losses() {
        let shown = |width| line(Duration::from_millis(83_900), Bytes(3 << 20), 41_234.0, 2, width);
        assert_eq!(shown(80), "1:23  3.00 MiB live  41.2k events/s  2 lost");
        assert_eq!(shown(43), "1:23  3.00 MiB live  41.2k events/s  2 lost");
        assert_eq!(shown(42), "1:23  3.00 MiB live  2 lost");
        assert_eq!(shown(26), "3.00 MiB live  2 lost");
        assert_eq!(shown(5), "3.00 ");
        assert_eq!(shown(0), "");
    }

    #[test]
    fn unknown_rate_is_shown_as_zero() {
        let shown = line(Duration::ZERO, Bytes(0), f64::NAN, 0, 80);
        assert_eq!(shown, "0:00  0 B live  0 events/s  0 lost");
    }
}
