//! The line that tells how far a run has come.

use std::time::Duration;

use crate::model::Bytes;

/// Tells how far a run has come, in at most `width` columns.
///
/// Where the width does not hold all of it, the rate of events goes first, then the time.
pub(super) fn line(elapsed: Duration, live: Bytes, events_per_s: f64, lost: u64, width: usize) -> String {
    let elapsed = clock(elapsed);
    let live = format!("{live} live");
    let rate = format!("{} events/s", short(events_per_s));
    let lost = format!("{lost} lost");
    let choices: [&[&str]; 3] = [&[&elapsed, &live, &rate, &lost], &[&elapsed, &live, &lost], &[&live, &lost]];
    let lines = choices.map(|parts| parts.join("  "));
    let fitting = lines.iter().find(|line| line.len() <= width);
    fitting.cloned().unwrap_or_else(|| lines[2].chars().take(width).collect())
}

/// `0:07`, `12:30`, `1:00:00`.
fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Three digits and a decimal unit, so that the line keeps its length: `999`, `12.3k`, `5.10M`.
fn short(number: f64) -> String {
    let mut scaled = number.max(0.0);
    let mut unit = "";
    for larger in ["k", "M", "G"] {
        // What would be rounded up to 1000 is written in the next unit.
        if scaled < 999.5 {
            break;
        }
        scaled /= 1000.0;
        unit = larger;
    }
    let digits = match scaled {
        _ if unit.is_empty() => 0,
        _ if scaled < 9.995 => 2,
        _ if scaled < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_time_live_bytes_rate_and_losses() {
        let shown = |width| line(Duration::from_millis(83_900), Bytes(3 << 20), 41_234.0, 2, width);
        assert_eq!(shown(80), "1:23  3.00 MiB live  41.2k events/s  2 lost");
        assert_eq!(shown(43), "1:23  3.00 MiB live  41.2k events/s  2 lost");
        assert_eq!(shown(42), "1:23  3.00 MiB live  2 lost");
        assert_eq!(shown(26), "3.00 MiB live  2 lost");
        assert_eq!(shown(5), "3.00 ");
        assert_eq!(shown(0), "");
    }

    #[test]
    fn time_is_shown_as_on_a_clock() {
        let shown = |seconds| clock(Duration::from_secs(seconds));
        assert_eq!(shown(0), "0:00");
        assert_eq!(shown(59), "0:59");
        assert_eq!(shown(750), "12:30");
        assert_eq!(shown(3600), "1:00:00");
        assert_eq!(shown(100 * 3600 + 61), "100:01:01");
    }

    #[test]
    fn rates_have_three_digits() {
        assert_eq!(short(0.0), "0");
        assert_eq!(short(999.4), "999");
        assert_eq!(short(999.5), "1.00k");
        assert_eq!(short(9_996.0), "10.0k");
        assert_eq!(short(99_960.0), "100k");
        assert_eq!(short(999_499.0), "999k");
        assert_eq!(short(5_100_000.0), "5.10M");
        assert_eq!(short(f64::NAN), "0");
    }
}
