//! Distribution of stack ends in a profile.

use std::collections::BTreeMap;

use memtrace_model::{Profile, StackEnd};

/// Distribution of stack ends, by number of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackQuality(BTreeMap<StackEnd, u64>);

impl StackQuality {
    /// Returns the distribution over all allocations, touches or stalls.
    pub(crate) fn of(profile: &Profile) -> Self {
        let mut quality = Self::default();
        for stack in &profile.stacks {
            *quality.0.entry(stack.end).or_default() += stack.usage.events();
        }
        quality
    }

    /// Returns the share of events with a stack that has this `end`, from 0 to 1; 0 if there are no events.
    pub(crate) fn share(&self, end: StackEnd) -> f64 {
        let all: u64 = self.0.values().sum();
        if all == 0 { 0.0 } else { self.0.get(&end).copied().unwrap_or(0) as f64 / all as f64 }
    }
}
