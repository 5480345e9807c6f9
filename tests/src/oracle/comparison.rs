//! Two multisets of stacks, and what they have in common.

use std::collections::HashMap;
use std::fmt;

use super::samples::Sample;
use crate::Place;

/// How far memtrace's stacks equal the oracle's, in sampled calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The oracle's samples.
    pub sampled: u64,
    /// The bytes allocated by the sampled calls.
    pub bytes: u64,
    /// Those of them that memtrace has stacks of, right or wrong.
    pub seen: u64,
    /// Those of them whose stacks are equal.
    pub equal: u64,
    /// Of the samples, those that could be compared only from the leaf to what the first code called that is of no loaded
    /// object, such as code that was generated at run time: the oracle knows no caller of that.
    pub to_generated: u64,
    /// Of the samples, those that could be compared only to the first frame in code of an object of which the object has no
    /// unwind information, for the same reason.
    pub to_unknown: u64,
    /// Stacks that differ, in words: some of the oracle's and some of memtrace's.
    pub differences: Vec<String>,
}

/// So many stacks that differ are told of each side.
const TOLD: usize = 3;

impl Comparison {
    /// Of the oracle's samples and memtrace's stacks, from leaf to root, with their ends and how often they were seen.
    pub(super) fn of(
        samples: impl Iterator<Item = Sample>,
        stacks: impl Iterator<Item = (Vec<Place>, String, u64)>,
    ) -> Self {
        let mut comparison = Self::default();
        let mut partial: HashMap<Vec<Place>, u64> = HashMap::new();
        let mut whole: HashMap<Vec<Place>, u64> = HashMap::new();
        for mut sample in samples {
            comparison.sampled += sample.count;
            comparison.bytes += sample.bytes;
            match (sample.whole, sample.places.last()) {
                (true, _) => {}
                (false, Some(Place::At(_))) => {
                    // Code can be moved away from the object that it was loaded from, as node does with its own; memtrace
                    // names its object then, and the dynamic linker knows of none.
                    sample.places.pop();
                    comparison.to_generated += sample.count;
                }
                (false, _) => comparison.to_unknown += sample.count,
            }
            *if sample.whole { &mut whole } else { &mut partial }.entry(sample.places).or_default() += sample.count;
        }
        let mut others = Vec::new();
        for (places, end, count) in stacks {
            comparison.seen += count;
            let is_whole = end == "complete" || end == "generated";
            let mut left = count;
            if is_whole && let Some(expected) = whole.get_mut(&places) {
                left -= comparison.take(expected, left);
            }
            for depth in 1..=places.len() {
                if left > 0
                    && let Some(expected) = partial.get_mut(&places[..depth])
                {
                    left -= comparison.take(expected, left);
                }
            }
            if left > 0 {
                others.push((left, format!("{left} of memtrace's, {end}"), places));
            }
        }
        let missing =
            whole.into_iter().map(|stack| ("whole", stack)).chain(partial.into_iter().map(|stack| ("cut", stack)));
        let missing = missing.filter(|(_, (_, left))| *left > 0);
        let missing = missing.map(|(end, (places, left))| (left, format!("{left} of the oracle's, {end}"), places));
        comparison.tell(missing.collect());
        comparison.tell(others);
        comparison
    }

    /// Takes as many of `wanted` as are left in `expected`.
    fn take(&mut self, expected: &mut u64, wanted: u64) -> u64 {
        let taken = wanted.min(*expected);
        *expected -= taken;
        self.equal += taken;
        taken
    }

    fn tell(&mut self, mut stacks: Vec<(u64, String, Vec<Place>)>) {
        stacks.sort_unstable_by(|one, other| other.cmp(one));
        for (_, head, places) in stacks.into_iter().take(TOLD) {
            let lines = places.iter().map(|place| format!("\n    {place}"));
            self.differences.push(format!("{head}:{}", lines.collect::<String>()));
        }
    }

    /// The share of samples whose stacks are equal.
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
            "{:.2} % equal ({equal} of {sampled} sampled, {seen} seen; compared only up to generated code {to_generated}, only up \
             to code without unwind information {to_unknown})",
            self.share() * 100.0
        )
    }
}
