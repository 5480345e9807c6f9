//! Stalls of one image.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::budget::Budget;
use crate::model::{
    ImageEnd, ImageUsage, Partition, StackKey, StackUsage, Stall, StallKey, StallStats, StallTotals, Usage,
};

/// Stalls of one image, by stack and by kind.
#[derive(Debug, Default)]
pub(super) struct ImageStalls {
    by_stack: FxHashMap<StackKey, StallTotals>,
    by_key: BTreeMap<StallKey, StallStats>,
}

impl ImageStalls {
    /// Adds a stall of the partition `part`.
    pub(super) fn add(&mut self, stall: &Stall, part: Partition, budget: &mut Budget) {
        let key = StackKey { stack: stall.stack, part };
        let key = if self.by_stack.contains_key(&key) { key } else { budget.admit(key) };
        *self.by_stack.entry(key).or_default() += StallTotals { count: 1, time: stall.duration };
        let Stall { group, work, .. } = *stall;
        self.by_key.entry(StallKey { group, work }).or_default().add(stall);
    }

    pub(super) fn usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = ImageUsage { ended, stalls: self.by_key.clone(), ..ImageUsage::default() };
        for (&key, &stalls) in &self.by_stack {
            let stack_usage = Usage { stalls, ..Usage::default() };
            usage.total += stack_usage;
            usage.by_stack.insert(key, StackUsage { usage: stack_usage, ..StackUsage::default() });
        }
        usage
    }
}
