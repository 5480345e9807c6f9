//! Assertions on reports.

use std::collections::BTreeMap;

use memtrace_common::vocabulary::LossReason;

use super::{Blocks, ProcessReport, Report};
use crate::totals::{SiteTotals, Totals, VictimTotals};

impl Report {
    /// Asserts that one process was traced, that its totals equal the victim's, and that no event
    /// was lost.
    pub fn assert_equals(&self, expected: &VictimTotals) {
        let [process] = &self.processes[..] else { panic!("not one process: {:#?}", self.processes) };
        process.assert_equals(expected);
        let filtered = Blocks { bytes: expected.filtered_bytes, count: expected.filtered_count };
        assert_eq!(self.filtered, filtered, "filtered");
        self.assert_consistent();
        self.assert_nothing_lost();
    }

    /// Asserts that the stacks of each process and of each group add up to its totals, and that the processes and the groups
    /// add up to the totals of the report. In each process, the freed, live, held and discarded blocks must add up to the
    /// allocated blocks. Only running processes may have live blocks, and only ended processes may have blocks held at exit.
    pub fn assert_consistent(&self) {
        assert_eq!(self.totals, self.processes.iter().map(|process| process.totals).sum(), "processes and totals");
        let unmatched: u64 = self.processes.iter().map(|process| process.unmatched_frees).sum();
        assert_eq!(self.unmatched_frees, unmatched, "unmatched frees");
        let repeated: u64 = self.processes.iter().map(|process| process.repeated_frees).sum();
        assert_eq!(self.repeated_frees, repeated, "repeated frees");
        let mut by_process = vec![Totals::default(); self.processes.len()];
        let mut by_root = vec![Totals::default(); self.roots.len()];
        for stack in &self.stacks {
            by_process[stack.process] += stack.totals;
            by_root[stack.root] += stack.totals;
        }
        for (process, stacks) in self.processes.iter().zip(by_process) {
            let Totals { live_bytes, live_count, exit_bytes, exit_count, .. } = process.totals;
            let Totals { alloc_bytes, alloc_count, free_bytes, free_count, .. } = process.totals;
            let (held_bytes, held_count) = match process.ended {
                None => (live_bytes, live_count),
                Some(_) => (exit_bytes, exit_count),
            };
            assert_eq!(alloc_bytes, free_bytes + held_bytes + process.discarded.bytes, "bytes of {process:?}");
            assert_eq!(alloc_count, free_count + held_count + process.discarded.count, "blocks of {process:?}");
            assert_eq!((held_bytes, held_count), (live_bytes + exit_bytes, live_count + exit_count), "{process:?}");
            assert_eq!(process.totals, stacks, "stacks of {process:?}");
        }
        assert_eq!(self.totals, self.roots.iter().map(|root| root.totals).sum(), "roots and totals");
        for (root, stacks) in self.roots.iter().zip(by_root) {
            assert_eq!(root.totals, stacks, "stacks of {}", root.name);
        }
    }

    /// Asserts that all loss counters are listed and are 0.
    pub fn assert_nothing_lost(&self) {
        let names: Vec<&str> = self.losses.keys().map(AsRef::as_ref).collect();
        assert_eq!(names, LossReason::ALL.iter().map(|reason| reason.name()).collect::<Vec<_>>());
        assert_eq!(self.lost(), BTreeMap::new());
    }

    /// Asserts that the counter of `reason` is `count` and all others are 0.
    pub fn assert_only_lost(&self, reason: LossReason, count: u64) {
        assert_eq!(self.lost(), BTreeMap::from([(reason.name(), count)]));
    }

    /// Returns the losses that have occurred.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<&str, u64> {
        self.losses.iter().filter(|(_, count)| **count > 0).map(|(name, count)| (&**name, *count)).collect()
    }

    /// Returns the loss counter of `reason`, which must be listed.
    #[must_use]
    pub fn loss_count(&self, reason: LossReason) -> u64 {
        *self.losses.get(reason.name()).unwrap_or_else(|| panic!("{} is not listed", reason.name()))
    }

    /// Asserts that the stacks with the function of `site` as leaf have the totals of the site. Their leaves must be at the
    /// line of the site in the file `source`.
    pub fn assert_site(&self, source: &str, site: &SiteTotals) {
        let totals: Totals = self.stacks_with_leaf(&site.name).map(|stack| stack.totals).sum();
        let has_ended = self.stacks_with_leaf(&site.name).any(|stack| self.processes[stack.process].ended.is_some());
        let expected = if has_ended { site.totals.at_exit() } else { site.totals };
        assert_eq!(totals, expected, "{}; leaves are {:?}", site.name, self.leaves());
        for leaf in self.stacks_with_leaf(&site.name).filter_map(|stack| stack.leaf()) {
            let file = leaf.file.as_deref().unwrap_or_default();
            assert!(file == source || file.ends_with(&format!("/{source}")), "{leaf:?} is not in {source}");
            assert_eq!(leaf.line, Some(site.line), "{leaf:?}");
        }
    }

    /// Asserts that all stacks with allocations have the stack end `end`.
    pub fn assert_all_end(&self, end: &str) {
        for stack in self.stacks.iter().filter(|stack| stack.totals.alloc_count > 0) {
            assert_eq!(stack.end, end, "{:?}", stack.names());
        }
        assert!((self.stack_quality[end] - 1.0).abs() < f64::EPSILON, "{:?}", self.stack_quality);
    }
}

impl ProcessReport {
    /// Asserts that the totals and the unmatched frees equal the numbers of the victim. If the process has ended, the
    /// blocks that were live when the victim printed its totals must be held at exit.
    pub fn assert_equals(&self, expected: &VictimTotals) {
        let totals = if self.ended.is_some() { expected.totals.at_exit() } else { expected.totals };
        assert_eq!(self.totals, totals, "the totals of {self:?}");
        assert_eq!(self.unmatched_frees, expected.unmatched_frees, "the unmatched frees of {self:?}");
    }
}
