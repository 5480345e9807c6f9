//! Folded stacks of two profiles.

use std::collections::BTreeMap;

use memtrace_model::{Frame, Profile};

use super::{Spelling, fold};
use crate::options::Options;

/// Returns the folded stacks of both profiles with their values in each, ordered by their text.
pub(crate) fn fold_pair(profiles: [&Profile; 2], options: &Options, separator: char) -> BTreeMap<String, [u64; 2]> {
    let spelling = Spelling { separator, frame: Frame::label, pruning: None };
    let mut pairs: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (side, profile) in profiles.into_iter().enumerate() {
        for (stack, value) in fold(profile, options, &spelling).lines() {
            pairs.entry(stack).or_default()[side] = value;
        }
    }
    pairs
}
