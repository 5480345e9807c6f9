//! Progress lines of a run.

use std::time::Duration;

use memtrace_model::{Bytes, format, shortened};

use crate::run_kit::observer::Progress;

/// Interval of the progress lines in a log.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Formats the progress in at most `width` columns.
///
/// If the line is too long, it omits the event rate, then the time. If it is still too long, it ends with an ellipsis.
pub(super) fn line(elapsed: Duration, live: Bytes, events_per_s: f64, lost: u64, width: usize) -> String {
    let elapsed = format::clock(elapsed);
    let live = format!("{live} live");
    let rate = format!("{} events/s", format::compact_decimal(events_per_s.max(0.0)));
    let lost = format!("{lost} lost");
    let choices: [&[&str]; 3] = [&[&elapsed, &live, &rate, &lost], &[&elapsed, &live, &lost], &[&live, &lost]];
    let lines = choices.map(|parts| parts.join("  "));
    let fitting = lines.iter().find(|line| line.len() <= width);
    fitting.cloned().unwrap_or_else(|| shortened(&lines[2], width))
}

/// Progress in a log: one line in each [`LOG_INTERVAL`].
#[derive(Default)]
pub(super) struct LogLines {
    /// Time and number of events at the last line.
    last: (Duration, u64),
}

impl LogLines {
    /// Returns a line if one is due. The event rate in the line is the mean since the last line.
    pub(super) fn next(&mut self, progress: &Progress) -> Option<String> {
        let (before, events_before) = self.last;
        let intervals = |time: Duration| time.as_secs() / LOG_INTERVAL.as_secs();
        if intervals(progress.elapsed) == intervals(before) {
            return None;
        }
        self.last = (progress.elapsed, progress.events);
        let seconds = progress.elapsed.saturating_sub(before).as_secs_f64();
        let rate = progress.events.saturating_sub(events_before) as f64 / seconds;
        Some(line(progress.elapsed, progress.live, rate, progress.lost, usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_gets_a_line_each_minute() {
        let mut log = LogLines::default();
        let mut at = |milliseconds, events| {
            let elapsed = Duration::from_millis(milliseconds);
            log.next(&Progress { elapsed, live: Bytes(3 << 20), events, events_per_second: 0.0, lost: 2 })
        };
        assert_eq!(at(100, 7), None);
        assert_eq!(at(59_999, 6_000), None);
        assert_eq!(at(60_000, 6_000).as_deref(), Some("1:00  3.00 MiB live  100 events/s  2 lost"));
        assert_eq!(at(60_100, 6_001), None);
        assert_eq!(at(119_900, 9_000), None);
        // The machine was suspended.
        assert_eq!(at(300_000, 9_600).as_deref(), Some("5:00  3.00 MiB live  15 events/s  2 lost"));
        assert_eq!(at(301_000, 9_600), None);
        assert_eq!(at(360_050, 9_600).as_deref(), Some("6:00  3.00 MiB live  0 events/s  2 lost"));
    }

    #[test]
    fn line_shows_time_live_bytes_rate_and_losses() {
        let shown = |width| line(Duration::from_millis(83_900), Bytes(3 << 20), 41_234.0, 2, width);
        assert_eq!(shown(80), "1:23  3.00 MiB live  41.2k events/s  2 lost");
        assert_eq!(shown(43), "1:23  3.00 MiB live  41.2k events/s  2 lost");
        assert_eq!(shown(42), "1:23  3.00 MiB live  2 lost");
        assert_eq!(shown(26), "3.00 MiB live  2 lost");
        assert_eq!(shown(5), "3.00…");
        assert_eq!(shown(0), "");
    }

    #[test]
    fn unknown_rate_is_shown_as_zero() {
        let shown = line(Duration::ZERO, Bytes(0), f64::NAN, 0, 80);
        assert_eq!(shown, "0:00  0 B live  0 events/s  0 lost");
    }
}
