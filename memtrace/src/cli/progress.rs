//! Progress lines of a run.

use std::time::Duration;

use memtrace_model::{format, shortened};

use crate::run_kit::observer::Progress;

/// Interval of the progress lines in a log.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Formats the progress in at most `width` columns. The time is the remaining time if the run has a duration, and
/// otherwise the elapsed time.
///
/// If the line is too long, it omits the event rate, then the time. If it is still too long, it ends with an ellipsis.
pub(super) fn line(progress: &Progress, events_per_s: f64, width: usize) -> String {
    let Progress { elapsed, left, live, lost, .. } = *progress;
    let time = left.map_or_else(|| format::clock(elapsed), |left| format!("{} left", format::clock(rounded_up(left))));
    let live = format!("{live} live");
    let rate = format!("{} events/s", format::compact_decimal(events_per_s.max(0.0)));
    let lost = format!("{lost} lost");
    let choices: [&[&str]; 3] = [&[&time, &live, &rate, &lost], &[&time, &live, &lost], &[&live, &lost]];
    let lines = choices.map(|parts| parts.join("  "));
    let fitting = lines.iter().find(|line| line.len() <= width);
    fitting.cloned().unwrap_or_else(|| shortened(&lines[2], width))
}

/// Rounds up to seconds, so that the progress does not show 0 s before the run ends.
fn rounded_up(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
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
        Some(line(progress, rate, usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::Bytes;

    use super::*;

    fn progress(elapsed: Duration, left: Option<Duration>, live: u64, lost: u64) -> Progress {
        Progress { elapsed, left, live: Bytes(live), events: 0, events_per_second: 0.0, lost }
    }

    #[test]
    fn log_gets_a_line_each_minute() {
        let mut log = LogLines::default();
        let mut at = |milliseconds, events| {
            let elapsed = Duration::from_millis(milliseconds);
            log.next(&Progress { events, ..progress(elapsed, None, 3 << 20, 2) })
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
        let shown = |width| line(&progress(Duration::from_millis(83_900), None, 3 << 20, 2), 41_234.0, width);
        assert_eq!(shown(80), "1:23  3.00 MiB live  41.2k events/s  2 lost");
        assert_eq!(shown(43), "1:23  3.00 MiB live  41.2k events/s  2 lost");
        assert_eq!(shown(42), "1:23  3.00 MiB live  2 lost");
        assert_eq!(shown(26), "3.00 MiB live  2 lost");
        assert_eq!(shown(5), "3.00…");
        assert_eq!(shown(0), "");
    }

    #[test]
    fn time_of_a_run_with_a_duration_counts_down() {
        let shown = |elapsed, left| {
            let (elapsed, left) = (Duration::from_millis(elapsed), Duration::from_millis(left));
            line(&progress(elapsed, Some(left), 0, 0), 0.0, 80)
        };
        assert_eq!(shown(100, 89_900), "1:30 left  0 B live  0 events/s  0 lost");
        assert_eq!(shown(30_000, 60_000), "1:00 left  0 B live  0 events/s  0 lost");
        assert_eq!(shown(89_999, 1), "0:01 left  0 B live  0 events/s  0 lost");
    }

    #[test]
    fn unknown_rate_is_shown_as_zero() {
        let shown = line(&progress(Duration::ZERO, None, 0, 0), f64::NAN, 80);
        assert_eq!(shown, "0:00  0 B live  0 events/s  0 lost");
    }
}
