//! Comparison of two multisets of stacks.

use std::collections::HashMap;
use std::fmt;

use super::samples::Sample;
use crate::CallSite;

/// Agreement of memtrace's stacks with the oracle's samples, in numbers of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Number of sampled calls.
    pub sampled: u64,
    /// Bytes that the sampled calls allocated.
    pub bytes: u64,
    /// Number of calls in memtrace's stacks of sampled calls.
    pub seen: u64,
    /// Number of sampled calls with equal stacks.
    pub equal: u64,
    /// Number of calls compared only from the leaf to the first generated code. This code belongs to no loaded object,
    /// so libgcc cannot unwind it.
    pub to_generated: u64,
    /// Number of calls compared only from the leaf to the first code without unwind information.
    pub to_unknown: u64,
    /// Examples of stacks that differ, from the oracle and from memtrace.
    pub differences: Vec<String>,
}

/// Maximum number of examples of each side.
const EXAMPLES: usize = 3;

impl Comparison {
    /// Compares the samples with memtrace's stacks: call sites from leaf to root, stack end, and number of calls.
    pub(super) fn new(
        samples: impl Iterator<Item = Sample>,
        stacks: impl Iterator<Item = (Vec<CallSite>, String, u64)>,
    ) -> Self {
        let mut comparison = Self::default();
        let mut partial: HashMap<Vec<CallSite>, u64> = HashMap::new();
        let mut complete: HashMap<Vec<CallSite>, u64> = HashMap::new();
        for mut sample in samples {
            comparison.sampled += sample.count;
            comparison.bytes += sample.bytes;
            match (sample.is_complete, sample.call_sites.last()) {
                (true, _) => {}
                (false, Some(CallSite::Address(_))) => {
                    // A process can move code of an object to another mapping, as node does. memtrace then names the
                    // object, but the dynamic linker does not know the mapping.
                    sample.call_sites.pop();
                    comparison.to_generated += sample.count;
                }
                (false, _) => comparison.to_unknown += sample.count,
            }
            let samples = if sample.is_complete { &mut complete } else { &mut partial };
            *samples.entry(sample.call_sites).or_default() += sample.count;
        }
        let mut unmatched = Vec::new();
        for (call_sites, end, count) in stacks {
            comparison.seen += count;
            let is_complete = end == "complete" || end == "generated";
            let mut left = count;
            if is_complete && let Some(expected) = complete.get_mut(&call_sites) {
                left -= comparison.match_calls(expected, left);
            }
            for depth in 1..=call_sites.len() {
                if left > 0
                    && let Some(expected) = partial.get_mut(&call_sites[..depth])
                {
                    left -= comparison.match_calls(expected, left);
                }
            }
            if left > 0 {
                unmatched.push((left, format!("{left} of memtrace's, {end}"), call_sites));
            }
        }
        let complete = complete.into_iter().map(|stack| ("complete", stack));
        let missing = complete.chain(partial.into_iter().map(|stack| ("partial", stack)));
        let missing = missing.filter(|(_, (_, left))| *left > 0);
        let missing = missing.map(|(end, (sites, left))| (left, format!("{left} of the oracle's, {end}"), sites));
        comparison.add_examples(missing.collect());
        comparison.add_examples(unmatched);
        comparison
    }

    /// Matches up to `count` calls with the `expected` calls that are left. Returns the number of matches.
    fn match_calls(&mut self, expected: &mut u64, count: u64) -> u64 {
        let matched = count.min(*expected);
        *expected -= matched;
        self.equal += matched;
        matched
    }

    fn add_examples(&mut self, mut stacks: Vec<(u64, String, Vec<CallSite>)>) {
        stacks.sort_unstable_by(|one, other| other.cmp(one));
        for (_, title, call_sites) in stacks.into_iter().take(EXAMPLES) {
            let lines = call_sites.iter().map(|site| format!("\n    {site}"));
            self.differences.push(format!("{title}:{}", lines.collect::<String>()));
        }
    }

    /// Returns the share of sampled calls with equal stacks, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.sampled == 0 { 0.0 } else { self.equal as f64 / self.sampled as f64 }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sampled, seen, equal, to_generated, to_unknown, .. } = self;
        write!(
            out,
            "{:.2} % equal ({equal} of {sampled} sampled, {seen} seen; {to_generated} compared up to generated code, \
             {to_unknown} up to code without unwind information)",
            self.share() * 100.0
        )
    }
}
