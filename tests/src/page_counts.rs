//! Page counts that the victim `pages` prints, and the RSS that the kernel reports.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use crate::Victim;
use crate::report::{Report, Stack};

/// Page size in bytes.
pub const PAGE: u64 = 4096;

/// Page counts of one process: the victim or its child.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PageCounts {
    pub pid: u32,
    /// Pages by the function that maps them.
    pub functions: BTreeMap<String, Pages>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Pages {
    pub resident: u64,
    pub mapped: u64,
}

impl PageCounts {
    /// Releases the victim from its barrier, and reads the page counts that the victim prints next.
    pub fn read_from(victim: &mut Victim) -> Self {
        victim.process().write_line("");
        victim.read_json()
    }

    /// Returns the stacks of the process that contain `function`, without the stacks of the victim's output.
    #[must_use]
    pub fn stacks<'report>(&self, report: &'report Report, function: &str) -> Vec<&'report Stack> {
        let stacks = report.stacks.iter().filter(|stack| stack.pid == self.pid);
        let stacks = stacks.filter(|stack| !stack.names().contains(&"expect_pages"));
        stacks.filter(|stack| stack.names().contains(&function)).collect()
    }

    /// Asserts for each function that the sum of `actual_bytes` over its stacks equals `expected_pages`.
    pub fn assert_pages(&self, report: &Report, expected_pages: fn(&Pages) -> u64, actual_bytes: fn(&Stack) -> u64) {
        for (function, pages) in &self.functions {
            let stacks = self.stacks(report, function);
            let bytes: u64 = stacks.iter().map(|stack| actual_bytes(stack)).sum();
            assert_eq!(bytes, expected_pages(pages) * PAGE, "{function}: {stacks:#?}");
        }
    }
}

/// Returns the RSS of a running process in bytes (`Rss` of `/proc/PID/smaps_rollup`).
#[must_use]
pub fn rss(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the process runs");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).expect("smaps_rollup has an RSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("the RSS is a number") * 1024
}
