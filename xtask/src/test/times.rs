//! Durations of the steps and of the tests.

use std::time::{Duration, Instant};

use crate::ui;

/// Line that a test binary prints for a test: `test NAME ... RESULT <SECONDSs>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestLine<'line> {
    pub(crate) name: &'line str,
    /// `ok`, `FAILED` or `ignored`.
    pub(crate) result: &'line str,
    /// Duration of the test, which is printed only with `--report-time`.
    pub(crate) duration: Option<Duration>,
}

impl<'line> TestLine<'line> {
    /// Parses a line of the output.
    pub(crate) fn parse(line: &'line str) -> Option<Self> {
        let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let (result, duration) = match rest.split_once(" <") {
            Some((result, time)) => (result, Some(seconds(time.strip_suffix("s>")?)?)),
            None => (rest, None),
        };
        ["ok", "FAILED", "ignored"].contains(&result).then_some(Self { name, result, duration })
    }
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// Returns the `count` slowest tests, the slowest first.
pub(super) fn slowest(mut tests: Vec<(String, Duration)>, count: usize) -> Vec<(String, Duration)> {
    tests.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    tests.truncate(count);
    tests
}

/// Steps of a run, with their durations.
pub(super) struct Steps {
    start: Instant,
    rows: Vec<(&'static str, Duration)>,
}

impl Steps {
    pub(super) fn begin() -> Self {
        Self { start: Instant::now(), rows: Vec::new() }
    }

    /// Runs `work` as a step, and records its duration.
    pub(super) fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        let duration = start.elapsed();
        ui::note(&format!("{name} took {} s", duration.as_secs()));
        self.rows.push((name, duration));
        result
    }

    /// Returns a line for each step, and a line with the duration of the run.
    pub(super) fn lines(&self) -> Vec<String> {
        let total = ("total", self.start.elapsed());
        self.rows.iter().chain([&total]).map(|(name, duration)| line(name, *duration)).collect()
    }
}

/// Returns a row of a table: `duration`, and `name` as its subject.
pub(super) fn line(name: &str, duration: Duration) -> String {
    format!("  {:>7.1} s  {name}", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_of_a_test_is_parsed() {
        let expected = TestLine { name: "a::b", result: "FAILED", duration: Some(Duration::from_millis(1234)) };
        assert_eq!(TestLine::parse("test a::b ... FAILED <1.234s>"), Some(expected));
    }

    #[test]
    fn duration_is_optional() {
        let expected = TestLine { name: "src/lib.rs - f (line 3)", result: "ok", duration: None };
        assert_eq!(TestLine::parse("test src/lib.rs - f (line 3) ... ok"), Some(expected));
    }

    #[test]
    fn other_lines_are_no_test_lines() {
        for line in ["running 3 tests", "test result: ok. 1 passed", "test a ... ", "test a ... ok <fast>"] {
            assert_eq!(TestLine::parse(line), None, "{line}");
        }
    }

    #[test]
    fn slowest_tests_are_first() {
        let tests = [("a", 1), ("b", 3), ("c", 2)].map(|(name, time)| (name.to_owned(), Duration::from_secs(time)));
        let names: Vec<String> = slowest(tests.to_vec(), 2).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "c"]);
    }

    #[test]
    fn steps_and_their_total_are_listed() {
        let mut steps = Steps::begin();
        assert_eq!(steps.time("build", || 7), 7);
        let lines = steps.lines();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with(" s  build") && lines[1].ends_with(" s  total"), "{lines:?}");
    }

    #[test]
    fn row_has_a_tenth_of_a_second() {
        assert_eq!(line("soak", Duration::from_millis(61_260)), "     61.3 s  soak");
    }
}
