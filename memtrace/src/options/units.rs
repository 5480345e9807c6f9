//! Parsers of the values of options: times, sizes, pids and others.
//!
//! Ambiguous numbers are refused, and the error has an example of a valid value.

use std::time::Duration;

use jiff::Timestamp;
use memtrace_model::Pid;
use memtrace_model::parse::not_a_number;

use crate::run_kit::config::Moment;
pub(crate) use memtrace_model::parse::{count, duration, size};

/// Parses a duration, which can have microseconds or nanoseconds as its only unit: `100us` or `100µs`, `500ns`.
pub(crate) fn short_duration(text: &str) -> Result<Duration, String> {
    let number = |unit| text.strip_suffix(unit).and_then(|number| number.parse().ok());
    match (number("us").or_else(|| number("µs")), number("ns")) {
        (Some(microseconds), _) => Ok(Duration::from_micros(microseconds)),
        (None, Some(nanoseconds)) => Ok(Duration::from_nanos(nanoseconds)),
        (None, None) => duration(text).map_err(|error| format!("{error}; shorter ones are written as 100us or 500ns")),
    }
}

/// A percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Percent(pub(crate) u32);

impl Percent {
    /// Returns the percentage as a share; 1 is the whole.
    #[must_use]
    pub(crate) fn share(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}
/// Parses a percentage: `10%` or `10`.
pub(crate) fn percent(text: &str) -> Result<Percent, String> {
    match text.strip_suffix('%').unwrap_or(text).parse() {
        Ok(0) => Err("tracing always costs something; give at least 1%".into()),
        Ok(number) => Ok(Percent(number)),
        Err(_) => Err(not_a_number(text, "10%")),
    }
}

/// Parses a moment of a recording: `+90s` after its start, `-5m` before its end, or `2026-11-22T21:05:00Z`.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    if let Some(after) = text.strip_prefix('+') {
        return offset(after).map(Moment::AfterStart);
    }
    if let Some(before) = text.strip_prefix('-') {
        return offset(before).map(Moment::BeforeEnd);
    }
    let time = text.parse::<Timestamp>().map(|time| Moment::Clock(time.into()));
    time.map_err(|_| {
        "write +90s for a time after the start, -5m for one before the end, or a time with its zone, as in \
         2026-11-22T21:05:00Z (RFC 3339)"
            .into()
    })
}

/// Parses a duration with an optional fraction of a second, as reports print it: `3.54s`.
fn offset(text: &str) -> Result<Duration, String> {
    let fraction = text.split_once('.').and_then(|(whole, rest)| Some((whole, rest.strip_suffix('s')?)));
    let is_fraction =
        |digits: &str| (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    match fraction.filter(|(_, digits)| is_fraction(digits)) {
        Some((whole, digits)) => {
            let nanoseconds = format!("{digits:0<9}").parse().map_err(|_| not_a_number(text, "3.54s"))?;
            Ok(duration(&format!("{whole}s"))? + Duration::from_nanos(nanoseconds))
        }
        None => duration(text),
    }
}

/// Parses the pid of a process.
pub(crate) fn pid(text: &str) -> Result<Pid, String> {
    match text.parse() {
        Ok(0) => Err("no process has pid 0; give the pid of a running one, as in --pid 4711".into()),
        Ok(pid) => Ok(Pid(pid)),
        Err(_) => Err("this is not a pid; give a whole number, as in --pid 4711, and --pid again for another".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_durations_have_smaller_units() {
        assert_eq!(short_duration("500ns"), Ok(Duration::from_nanos(500)));
        assert_eq!(short_duration("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(short_duration("100µs"), Ok(Duration::from_micros(100)));
        assert_eq!(short_duration("1m30s"), Ok(Duration::from_secs(90)));
        let refused =
            "a unit is missing; write 5s for seconds, 5ms, 5m or 5h; shorter ones are written as 100us or 500ns";
        assert_eq!(short_duration("5"), Err(String::from(refused)));
    }

    #[test]
    fn moment_is_an_offset_or_a_time_with_a_zone() {
        assert_eq!(moment("+90s"), Ok(Moment::AfterStart(Duration::from_secs(90))));
        assert_eq!(moment("+0s"), Ok(Moment::AfterStart(Duration::ZERO)));
        assert_eq!(moment("-1h30m"), Ok(Moment::BeforeEnd(Duration::from_secs(5400))));
        assert_eq!(moment("+3.54s"), Ok(Moment::AfterStart(Duration::from_millis(3540))));
        assert_eq!(moment("-1m0.001s"), Ok(Moment::BeforeEnd(Duration::from_millis(60_001))));
        let clock =
            |seconds, nanoseconds| Ok(Moment::Clock(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)));
        assert_eq!(moment("1970-01-02T00:00:00Z"), clock(86_400, 0));
        assert_eq!(moment("2026-11-22T21:05:00.25Z"), clock(1_795_381_500, 250_000_000));
        assert_eq!(moment("2026-11-22T22:05:00+01:00"), clock(1_795_381_500, 0));
        // `+` and `-` need a duration with its unit. A time needs its zone.
        for text in [
            "",
            "+",
            "-",
            "+5",
            "+.5s",
            "+1.s",
            "+1.5m",
            "--5s",
            "90s",
            "now",
            "21:05:00",
            "2026-11-22",
            "2026-11-22T21:05:00",
        ] {
            assert!(moment(text).is_err(), "{text}");
        }
        assert_eq!(moment("+5"), Err("a unit is missing; write 5s for seconds, 5ms, 5m or 5h".into()));
    }

    #[test]
    fn pid_0_is_refused() {
        assert_eq!(pid("4711"), Ok(Pid(4711)));
        assert!(pid("0").is_err_and(|error| error.starts_with("no process has pid 0")));
        for text in ["", "-1", "1,2", "nginx", "4294967296"] {
            assert!(
                pid(text).is_err_and(|error| error.starts_with("this is not a pid; give a whole number")),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC*") {
            let _ = (pid(&text), moment(&text));
        }
    }
}
