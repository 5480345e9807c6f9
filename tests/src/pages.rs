//! What the victim `pages` says of its own memory, and what the kernel does.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use crate::Victim;
use crate::report::{Report, Stack};

/// The size of a page.
pub const PAGE: u64 = 4096;

/// What the victim says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Said {
    /// The process that has it: the victim, or its child.
    pub pid: u32,
    /// By function.
    pub functions: BTreeMap<String, Pages>,
}

/// The pages of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Pages {
    /// Those that are in memory.
    pub resident: u64,
    /// Those that are mapped.
    pub mapped: u64,
}

impl Said {
    /// Lets the victim work, and hears what it says then.
    ///
    /// # Panics
    ///
    /// If it says something else.
    pub fn hear(victim: &mut Victim) -> Self {
        victim.process().tell("");
        let line = victim.process().line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The stacks of the process that pass through `function`, but where it says what it has done.
    #[must_use]
    pub fn stacks<'report>(&self, report: &'report Report, function: &str) -> Vec<&'report Stack> {
        let own = report.stacks.iter().filter(|stack| stack.pid == self.pid);
        let own = own.filter(|stack| !stack.names().contains(&"expect_pages"));
        own.filter(|stack| stack.names().contains(&function)).collect()
    }

    /// Asserts that `told` of the function's stacks, in bytes, comes to what the victim says of each function, to the page.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn assert_pages(&self, report: &Report, said: fn(&Pages) -> u64, told: fn(&Stack) -> u64) {
        for (function, pages) in &self.functions {
            let bytes: u64 = self.stacks(report, function).into_iter().map(told).sum();
            assert_eq!(bytes, said(pages) * PAGE, "{function}: {:#?}", self.stacks(report, function));
        }
    }
}

/// What the kernel says is resident of a process, in bytes (`Rss` of `/proc/PID/smaps_rollup`).
///
/// # Panics
///
/// If the process has ended.
#[must_use]
pub fn rss(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the process runs");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).expect("there is a line of it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
