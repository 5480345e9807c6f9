//! Results of the test binaries.

use std::process::ExitStatus;
use std::time::Duration;

use super::times::{self, Steps, TestLine};

/// Number of slow tests in the summary.
const SLOWEST: usize = 20;

/// Result of one run of a test binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BinaryResult {
    passed: u64,
    failed: u64,
    ignored: u64,
    failures: Vec<String>,
    /// Tests that ran, with their durations.
    tests: Vec<(String, Option<Duration>)>,
    /// Message with the exit status, if the binary failed without a failed test.
    crash: Option<String>,
    duration: Duration,
}

impl BinaryResult {
    /// Parses a line of the binary's output.
    pub(crate) fn read_line(&mut self, line: &str) {
        if let Some(TestLine { name, result, duration }) = TestLine::parse(line).filter(|line| line.result != "ignored")
        {
            self.tests.push((name.to_owned(), duration));
            if result == "FAILED" {
                self.failures.push(name.to_owned());
            }
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        // `ok. 44 passed; 1 failed; 0 ignored; ...`
        for word in result.split_once(". ").map_or("", |(_, counts)| counts).split("; ") {
            match word.split_once(' ') {
                Some((count, "passed")) => self.passed += count.parse().unwrap_or(0),
                Some((count, "failed")) => self.failed += count.parse().unwrap_or(0),
                Some((count, "ignored")) => self.ignored += count.parse().unwrap_or(0),
                _ => {}
            }
        }
    }

    /// Records the exit status. A failure without a failed test means that the binary crashed.
    pub(crate) fn end(&mut self, status: ExitStatus) {
        if !status.success() && self.failed == 0 {
            self.failed = 1;
            self.crash = Some(format!("did not finish: {status}"));
        }
    }

    /// Records the duration of the run.
    pub(super) const fn took(&mut self, duration: Duration) {
        self.duration = duration;
    }

    /// Returns the tests of `expected` that did not run.
    pub(super) fn missing<'list>(&self, expected: &'list [String]) -> Vec<&'list str> {
        let ran = |name: &String| self.tests.iter().any(|(test, _)| test == name);
        expected.iter().filter(|name| !ran(name)).map(String::as_str).collect()
    }

    const fn count(&self) -> u64 {
        self.passed + self.failed
    }
}

/// Tests that run in the same environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Unprivileged,
    Privileged,
    /// Tests in guests with other kernels.
    Guests,
}

impl Group {
    /// All groups, which `cargo xtask test` runs without `--kernels`.
    pub(super) const ALL: &[Self] = &[Self::Unprivileged, Self::Privileged, Self::Guests];

    const fn name(self) -> &'static str {
        match self {
            Self::Unprivileged => "unprivileged",
            Self::Privileged => "privileged",
            Self::Guests => "in guests",
        }
    }
}

/// Results of all test binaries.
pub(crate) struct Results {
    /// Groups that must run.
    groups: &'static [Group],
    rows: Vec<(Group, String, BinaryResult)>,
    problems: Vec<String>,
    /// Names of the passed checks that are not tests, for the summary.
    checks: Vec<String>,
}

impl Results {
    /// Creates an empty list. Each of `groups` must run.
    pub(super) const fn of_groups(groups: &'static [Group]) -> Self {
        Self { groups, rows: Vec::new(), problems: Vec::new(), checks: Vec::new() }
    }

    /// Adds a passed check that is not a test.
    pub(super) fn check(&mut self, name: String) {
        self.checks.push(name);
    }

    /// Adds a problem that is not a failed test.
    pub(crate) fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Adds the result of a test binary that may have no test in the group.
    pub(super) fn add(&mut self, group: Group, name: &str, result: BinaryResult) {
        if result.ignored > 0 {
            self.problems.push(format!("{name}: {} tests were ignored", result.ignored));
        }
        self.problems.extend(result.failures.iter().map(|test| format!("{name}: {test} failed")));
        self.problems.extend(result.crash.iter().map(|crash| format!("{name}: {crash}")));
        self.rows.push((group, name.to_owned(), result));
    }

    /// Adds the result of a test binary or topic that must have tests in the group.
    pub(crate) fn add_required(&mut self, group: Group, name: &str, result: BinaryResult) {
        if result.count() == 0 {
            self.problems.push(format!("{name}: no test ran"));
        }
        self.add(group, name, result);
    }

    /// Records that a group did not run.
    pub(super) fn add_missing_group(&mut self, group: Group, why: &str) {
        self.problems.push(format!("the tests of the group \"{}\" did not run: {why}", group.name()));
    }

    /// Returns a summary with the totals in its last line, and true if all tests ran and passed.
    pub(super) fn conclude(mut self, steps: &Steps) -> (String, bool) {
        self.find_empty_groups();
        (self.summary(steps), self.problems.is_empty())
    }

    fn find_empty_groups(&mut self) {
        for &group in self.groups {
            if self.of(group).map(|(_, result)| result.count()).sum::<u64>() == 0 {
                self.problems.push(format!("no test of the group \"{}\" ran", group.name()));
            }
        }
    }

    fn summary(&self, steps: &Steps) -> String {
        let mut lines = vec![String::from("Results:")];
        for &group in self.groups {
            let (passed, failed) = sum(self.of(group).map(|(_, result)| result));
            lines.push(format!("  {}: {passed} passed, {failed} failed", group.name()));
            for (name, result) in self.of(group).filter(|(_, result)| result.count() > 0) {
                let seconds = result.duration.as_secs_f64();
                lines.push(format!("    {name}: {} passed, {} failed, {seconds:.1} s", result.passed, result.failed));
            }
        }
        if !self.checks.is_empty() {
            lines.push(format!("  and {}", self.checks.join(", ")));
        }
        lines.push(String::from("Slowest tests:"));
        lines.extend(self.slowest().iter().map(|(name, duration)| times::line(name, *duration)));
        lines.push(String::from("Steps:"));
        lines.extend(steps.lines());
        if !self.problems.is_empty() {
            lines.push(String::from("Problems:"));
            lines.extend(self.problems.iter().map(|problem| format!("  {problem}")));
        }
        let (passed, failed) = sum(self.rows.iter().map(|(_, _, result)| result));
        lines.push(format!("{passed} passed, {failed} failed"));
        lines.join("\n")
    }

    fn slowest(&self) -> Vec<(String, Duration)> {
        let tests = self.rows.iter().flat_map(|(_, binary, result)| {
            let timed = result.tests.iter().filter_map(|(test, duration)| Some((test, (*duration)?)));
            timed.map(move |(test, duration)| (format!("{binary}: {test}"), duration))
        });
        times::slowest(tests.collect(), SLOWEST)
    }

    fn of(&self, group: Group) -> impl Iterator<Item = (&str, &BinaryResult)> {
        self.rows.iter().filter(move |row| row.0 == group).map(|(_, name, result)| (name.as_str(), result))
    }
}

fn sum<'a>(rows: impl Iterator<Item = &'a BinaryResult>) -> (u64, u64) {
    rows.fold((0, 0), |(passed, failed), result| (passed + result.passed, failed + result.failed))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    const SOME: &[Group] = &[Group::Unprivileged, Group::Privileged];

    fn result(lines: &[&str], status: i32) -> BinaryResult {
        let mut result = BinaryResult::default();
        for line in lines {
            result.read_line(line);
        }
        result.end(ExitStatus::from_raw(status << 8));
        result
    }

    fn good(passed: u64) -> BinaryResult {
        BinaryResult { passed, ..BinaryResult::default() }
    }

    #[test]
    fn results_are_parsed_from_the_output() {
        let lines = [
            "running 45 tests",
            "test tidy::tests::the_tree_is_tidy ... FAILED <0.230s>",
            "test result: FAILED. 44 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.24s",
        ];
        let result = result(&lines, 101);
        assert_eq!((result.passed, result.failed, result.ignored), (44, 1, 2));
        assert_eq!(result.failures, ["tidy::tests::the_tree_is_tidy"]);
        assert_eq!(result.crash, None);
    }

    #[test]
    fn tests_that_did_not_run_are_missing() {
        let result = result(&["test a ... ok <0.010s>", "test b ... FAILED", "test c ... ignored"], 101);
        let expected = ["a", "b", "c", "d"].map(str::to_owned);
        assert_eq!(result.missing(&expected), ["c", "d"]);
    }

    #[test]
    fn slowest_tests_and_durations_are_in_the_summary() {
        let mut results = Results::of_groups(SOME);
        let mut binary = result(&["test a ... ok <0.010s>", "test b ... ok <2.500s>"], 0);
        binary.passed = 2;
        binary.took(Duration::from_secs(3));
        results.add(Group::Privileged, "equality", binary);
        results.check(String::from("formatting"));
        let summary = results.conclude(&Steps::begin()).0;
        let expected = [
            "    equality: 2 passed, 0 failed, 3.0 s",
            "  and formatting",
            "Slowest tests:",
            "      2.5 s  equality: b",
            "      0.0 s  equality: a",
            "Steps:",
        ];
        let lines: Vec<&str> = summary.lines().collect();
        assert!(lines.windows(expected.len()).any(|window| window == expected), "{summary}");
    }

    #[test]
    fn several_results_of_one_binary_are_added() {
        let line = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(result(&[line, line], 0).passed, 4);
    }

    #[test]
    fn crashed_binary_has_failed() {
        let result = result(&["running 3 tests"], 124);
        assert_eq!(result.failed, 1);
        assert_eq!(result.crash.as_deref(), Some("did not finish: exit status: 124"));
    }

    /// Returns the problems of these results. The last value of a row is true if the binary must have tests.
    fn problems(rows: &[(Group, &str, BinaryResult, bool)]) -> Vec<String> {
        let mut results = Results::of_groups(SOME);
        for (group, name, result, required) in rows {
            if *required {
                results.add_required(*group, name, result.clone());
            } else {
                results.add(*group, name, result.clone());
            }
        }
        let (summary, passed) = results.conclude(&Steps::begin());
        let wrong = summary.lines().skip_while(|line| *line != "Problems:").skip(1);
        let mut problems: Vec<String> = wrong.map(|line| line.trim().to_owned()).collect();
        problems.pop();
        assert_eq!(problems.is_empty(), passed);
        problems
    }

    #[test]
    fn last_line_has_the_totals() {
        let mut results = Results::of_groups(SOME);
        results.add(Group::Unprivileged, "memtrace", good(3));
        results.add(Group::Privileged, "equality", BinaryResult { failed: 1, ..good(4) });
        assert_eq!(results.conclude(&Steps::begin()).0.lines().last(), Some("7 passed, 1 failed"));
    }

    #[test]
    fn group_without_tests_is_a_failure() {
        let problems = problems(&[
            (Group::Unprivileged, "memtrace", good(3), false),
            (Group::Privileged, "memtrace", good(0), false),
        ]);
        assert_eq!(problems, ["no test of the group \"privileged\" ran"]);
    }

    #[test]
    fn topic_without_tests_is_a_failure() {
        let problems = problems(&[
            (Group::Unprivileged, "memtrace", good(3), false),
            (Group::Privileged, "equality", good(1), true),
            (Group::Privileged, "launch", good(0), true),
        ]);
        assert_eq!(problems, ["launch: no test ran"]);
    }

    #[test]
    fn ignored_and_failed_tests_are_failures() {
        let failed = BinaryResult { failures: vec![String::from("a")], failed: 1, ..good(1) };
        let problems = problems(&[
            (Group::Unprivileged, "memtrace", BinaryResult { ignored: 1, ..good(3) }, false),
            (Group::Privileged, "equality", failed, true),
        ]);
        assert_eq!(problems, ["memtrace: 1 tests were ignored", "equality: a failed"]);
    }

    #[test]
    fn run_without_failures_is_a_success() {
        let problems = problems(&[
            (Group::Unprivileged, "memtrace", good(3), false),
            (Group::Privileged, "equality", good(1), true),
        ]);
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn missing_group_is_a_failure() {
        let mut results = Results::of_groups(SOME);
        results.add(Group::Unprivileged, "memtrace", good(3));
        results.add_missing_group(Group::Privileged, "there is no sudo");
        let (summary, passed) = results.conclude(&Steps::begin());
        assert!(!passed);
        assert!(summary.contains("  the tests of the group \"privileged\" did not run: there is no sudo"), "{summary}");
    }
}
