//! What ran, and what came of it.

use std::process::ExitStatus;

/// What came of one test program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    passed: u64,
    failed: u64,
    ignored: u64,
    failures: Vec<String>,
    /// How it ended, where that was not as its results say.
    crash: Option<String>,
}

impl Ran {
    /// Reads a line that the program wrote.
    pub(crate) fn read_line(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            self.failures.push(test.to_owned());
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

    /// The program has ended. One that fails without a failed test did not get to its end: that is a failure.
    pub(crate) fn end(&mut self, status: ExitStatus) {
        if !status.success() && self.failed == 0 {
            self.failed = 1;
            self.crash = Some(format!("did not finish: {status}"));
        }
    }

    const fn count(&self) -> u64 {
        self.passed + self.failed
    }
}

/// Tests that run in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Unprivileged,
    Privileged,
    /// In guests, with other kernels.
    Guests,
}

impl Group {
    /// What `cargo xtask test` runs.
    pub(super) const ALL: &[Self] = &[Self::Unprivileged, Self::Privileged, Self::Guests];

    const fn name(self) -> &'static str {
        match self {
            Self::Unprivileged => "without privileges",
            Self::Privileged => "privileged",
            Self::Guests => "on other kernels",
        }
    }
}

/// Everything that ran.
pub(crate) struct Tally {
    /// The groups that must have run.
    groups: &'static [Group],
    rows: Vec<(Group, String, Ran)>,
    problems: Vec<String>,
}

impl Tally {
    /// Nothing yet; something of each of these groups has to come.
    pub(super) const fn of_groups(groups: &'static [Group]) -> Self {
        Self { groups, rows: Vec::new(), problems: Vec::new() }
    }

    /// Something is wrong that no test tells.
    pub(crate) fn problem(&mut self, what: String) {
        self.problems.push(what);
    }

    /// Adds a program that may have no tests of the group.
    pub(super) fn add(&mut self, group: Group, name: &str, ran: Ran) {
        if ran.ignored > 0 {
            self.problems.push(format!("{name}: {} tests were ignored", ran.ignored));
        }
        self.problems.extend(ran.failures.iter().map(|test| format!("{name}: {test} failed")));
        self.problems.extend(ran.crash.iter().map(|crash| format!("{name}: {crash}")));
        self.rows.push((group, name.to_owned(), ran));
    }

    /// Adds a program that is there for its tests alone.
    pub(crate) fn add_required(&mut self, group: Group, name: &str, ran: Ran) {
        if ran.count() == 0 {
            self.problems.push(format!("{name}: not a single test ran"));
        }
        self.add(group, name, ran);
    }

    /// A whole group did not run.
    pub(super) fn could_not_run(&mut self, group: Group, why: &str) {
        self.problems.push(format!("the tests of the group \"{}\" did not run: {why}", group.name()));
    }

    /// What ran, with the sum of it in the last line, and whether all is well: nothing failed, and nothing that should
    /// run did not.
    pub(super) fn conclude(mut self) -> (String, bool) {
        self.find_empty_groups();
        (self.summary(), self.problems.is_empty())
    }

    fn find_empty_groups(&mut self) {
        for &group in self.groups {
            if self.of(group).map(|(_, ran)| ran.count()).sum::<u64>() == 0 {
                self.problems.push(format!("not a single test of the group \"{}\" ran", group.name()));
            }
        }
    }

    fn summary(&self) -> String {
        let mut lines = vec![String::from("What ran:")];
        for &group in self.groups {
            let (passed, failed) = sum(self.of(group).map(|(_, ran)| ran));
            lines.push(format!("  {}: {passed} passed, {failed} failed", group.name()));
            for (name, ran) in self.of(group).filter(|(_, ran)| ran.count() > 0) {
                lines.push(format!("    {name}: {} passed, {} failed", ran.passed, ran.failed));
            }
        }
        if self.groups == Group::ALL {
            lines.push(String::from("  and formatting, clippy's lints, the project's own rules"));
        }
        if !self.problems.is_empty() {
            lines.push(String::from("What is wrong:"));
            lines.extend(self.problems.iter().map(|problem| format!("  {problem}")));
        }
        let (passed, failed) = sum(self.rows.iter().map(|(_, _, ran)| ran));
        lines.push(format!("{passed} passed, {failed} failed"));
        lines.join("\n")
    }

    fn of(&self, group: Group) -> impl Iterator<Item = (&str, &Ran)> {
        self.rows.iter().filter(move |row| row.0 == group).map(|(_, name, ran)| (name.as_str(), ran))
    }
}

fn sum<'a>(rows: impl Iterator<Item = &'a Ran>) -> (u64, u64) {
    rows.fold((0, 0), |(passed, failed), ran| (passed + ran.passed, failed + ran.failed))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    const SOME: &[Group] = &[Group::Unprivileged, Group::Privileged];

    fn ran(lines: &[&str], status: i32) -> Ran {
        let mut ran = Ran::default();
        for line in lines {
            ran.read_line(line);
        }
        ran.end(ExitStatus::from_raw(status << 8));
        ran
    }

    fn good(passed: u64) -> Ran {
        Ran { passed, ..Ran::default() }
    }

    #[test]
    fn results_are_read_from_what_the_test_program_writes() {
        let lines = [
            "running 45 tests",
            "test tidy::tests::the_tree_is_tidy ... FAILED",
            "test result: FAILED. 44 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.24s",
        ];
        let ran = ran(&lines, 101);
        assert_eq!((ran.passed, ran.failed, ran.ignored), (44, 1, 2));
        assert_eq!(ran.failures, ["tidy::tests::the_tree_is_tidy"]);
        assert_eq!(ran.crash, None);
    }

    #[test]
    fn several_results_of_one_run_are_added() {
        let line = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(ran(&[line, line], 0).passed, 4);
    }

    #[test]
    fn a_program_that_dies_has_failed() {
        let ran = ran(&["running 3 tests"], 124);
        assert_eq!(ran.failed, 1);
        assert_eq!(ran.crash.as_deref(), Some("did not finish: exit status: 124"));
    }

    /// What the tally of these rows says is wrong; the last of a row is whether it is a file of tests.
    fn problems(rows: &[(Group, &str, Ran, bool)]) -> Vec<String> {
        let mut tally = Tally::of_groups(SOME);
        for (group, name, ran, required) in rows {
            if *required {
                tally.add_required(*group, name, ran.clone());
            } else {
                tally.add(*group, name, ran.clone());
            }
        }
        let (summary, well) = tally.conclude();
        let wrong = summary.lines().skip_while(|line| *line != "What is wrong:").skip(1);
        let mut problems: Vec<String> = wrong.map(|line| line.trim().to_owned()).collect();
        problems.pop();
        assert_eq!(problems.is_empty(), well);
        problems
    }

    #[test]
    fn the_last_line_counts_everything() {
        let mut tally = Tally::of_groups(SOME);
        tally.add(Group::Unprivileged, "memtrace", good(3));
        tally.add(Group::Privileged, "memtrace-tests exact", Ran { failed: 1, ..good(4) });
        assert_eq!(tally.conclude().0.lines().last(), Some("7 passed, 1 failed"));
    }

    #[test]
    fn a_group_that_ran_nothing_is_a_failure() {
        let found = problems(&[
            (Group::Unprivileged, "memtrace", good(3), false),
            (Group::Privileged, "memtrace", good(0), false),
        ]);
        assert_eq!(found, ["not a single test of the group \"privileged\" ran"]);
    }

    #[test]
    fn a_file_of_tests_that_ran_nothing_is_a_failure() {
        let found = problems(&[
            (Group::Unprivileged, "memtrace", good(3), false),
            (Group::Privileged, "memtrace-tests exact", good(1), true),
            (Group::Privileged, "memtrace-tests fork", good(0), true),
        ]);
        assert_eq!(found, ["memtrace-tests fork: not a single test ran"]);
    }

    #[test]
    fn ignored_tests_and_failed_ones_are_failures() {
        let failed = Ran { failures: vec![String::from("a")], failed: 1, ..good(1) };
        let found = problems(&[
            (Group::Unprivileged, "memtrace", Ran { ignored: 1, ..good(3) }, false),
            (Group::Privileged, "memtrace-tests exact", failed, true),
        ]);
        assert_eq!(found, ["memtrace: 1 tests were ignored", "memtrace-tests exact: a failed"]);
    }

    #[test]
    fn everything_that_ran_and_passed_is_a_success() {
        let found = problems(&[
            (Group::Unprivileged, "memtrace", good(3), false),
            (Group::Privileged, "memtrace-tests exact", good(1), true),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn tests_that_nobody_was_allowed_to_run_are_a_failure() {
        let mut tally = Tally::of_groups(SOME);
        tally.add(Group::Unprivileged, "memtrace", good(3));
        tally.could_not_run(Group::Privileged, "there is no sudo");
        let (summary, well) = tally.conclude();
        assert!(!well);
        assert!(summary.contains("  the tests of the group \"privileged\" did not run: there is no sudo"), "{summary}");
    }
}
