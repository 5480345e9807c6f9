//! The books of one image's waits for memory.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::image::Room;
use crate::model::{
    ImageEnd, ImageUsage, Partition, StackKey, StackUsage, Stall, StallKey, StallStats, StallTotals, Usage,
};

/// The books of one image's waits.
#[derive(Debug, Default)]
pub(super) struct Waits {
    by_stack: FxHashMap<StackKey, StallTotals>,
    by_key: BTreeMap<StallKey, StallStats>,
}

impl Waits {
    /// A thread has waited; `part` is whose books it goes to.
    pub(super) fn add(&mut self, stall: &Stall, part: Partition, room: &mut Room) {
        let key = StackKey { stack: stall.stack, part };
        let key = if self.by_stack.contains_key(&key) { key } else { room.admit(key) };
        *self.by_stack.entry(key).or_default() += StallTotals { count: 1, time: stall.duration };
        let Stall { group, work, .. } = *stall;
        self.by_key.entry(StallKey { group, work }).or_default().add(stall);
    }

    /// The image's numbers.
    pub(super) fn usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = ImageUsage { ended, stalls: self.by_key.clone(), ..ImageUsage::default() };
        for (&key, &stalls) in &self.by_stack {
            let of_stack = Usage { stalls, ..Usage::default() };
            usage.total += of_stack;
            usage.by_stack.insert(key, StackUsage { usage: of_stack, ..StackUsage::default() });
        }
        usage
    }
}
