//! Totals of one process image.

use std::collections::BTreeMap;

use crate::model::{
    Amount, Bytes, ImageEnd, ImageRusage, Pid, Residency, StackKey, StallKey, StallStats, StallTotals, Touched, Usage,
    Variance,
};

/// The books of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUsage {
    /// How the image ended, if it has.
    pub ended: Option<ImageEnd>,
    /// All stacks together.
    pub total: Usage,
    /// What was live when the image was replaced by `exec`: allocated = freed + live + discarded.
    pub discarded: Amount,
    /// Frees of blocks that are not in the books: allocated before tracing began, or filtered.
    pub unmatched_frees: u64,
    /// The highest that the live bytes ever were; `None` where no peak was kept (it is kept by a single shard only,
    /// since the peaks of parts do not add up).
    pub peak: Option<Bytes>,
    /// By stack, and by the parts of the process that are kept apart.
    pub by_stack: BTreeMap<StackKey, StackUsage>,
    /// The pages or mappings that are in the books of an image that runs, in order. Empty for other books.
    pub touched: Vec<Touched>,
    /// Its waits for memory, by what was done meanwhile and for which control group.
    pub stalls: BTreeMap<StallKey, StallStats>,
    /// The process whose copy it is, in the books of pages of an image that runs.
    pub copy_of: Option<Pid>,
    /// What is resident of an image that runs, where that was asked for.
    pub resident: Option<Residency>,
    /// What the kernel itself has counted of its process, in the books of pages.
    pub counts: ImageRusage,
}

/// The books of one stack of one image, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackUsage {
    /// The numbers.
    pub usage: Usage,
    /// The stack's live bytes when the image's live bytes were highest; 0 where no peak was kept.
    pub at_peak: Bytes,
    /// How many touches of pages had to wait for a device.
    pub major_faults: u64,
    /// How uncertain the numbers are.
    pub variance: Variance,
    /// What is resident of live mappings.
    pub resident: Bytes,
}

impl ImageUsage {
    pub(super) fn merge(&mut self, other: Self) {
        self.ended = self.ended.max(other.ended);
        self.total += other.total;
        self.discarded += other.discarded;
        self.unmatched_frees = self.unmatched_frees.wrapping_add(other.unmatched_frees);
        // A peak is of one shard that saw everything; the others, having seen nothing of the image, have none.
        self.peak = self.peak.max(other.peak);
        for (id, theirs) in other.by_stack {
            let ours = self.by_stack.entry(id).or_default();
            ours.usage += theirs.usage;
            ours.at_peak.0 = ours.at_peak.0.wrapping_add(theirs.at_peak.0);
            ours.major_faults = ours.major_faults.wrapping_add(theirs.major_faults);
            ours.variance += theirs.variance;
            ours.resident.0 = ours.resident.0.wrapping_add(theirs.resident.0);
        }
        for (key, theirs) in &other.stalls {
            self.stalls.entry(*key).or_default().merge(theirs);
        }
        self.touched.extend(other.touched);
        self.touched.sort_unstable_by_key(|touched| touched.begin);
        self.touched.dedup_by(|next, last| {
            let joins = last.end() == next.begin && last.key == next.key;
            last.pages += if joins { next.pages } else { 0 };
            joins
        });
        self.copy_of = self.copy_of.or(other.copy_of);
        self.resident = self.resident.take().or(other.resident);
        self.counts.begin = self.counts.begin.or(other.counts.begin);
        self.counts.end = self.counts.end.or(other.counts.end);
    }

    pub(super) fn diff(&self, earlier: &Self) -> Self {
        let mut change = self.clone();
        change.total -= earlier.total;
        change.discarded -= earlier.discarded;
        change.unmatched_frees = change.unmatched_frees.wrapping_sub(earlier.unmatched_frees);
        // Peaks are not subtracted: the highest of an interval is not the difference of two highest.
        change.peak = None;
        for (id, then) in &earlier.by_stack {
            let now = change.by_stack.entry(*id).or_default();
            now.usage -= then.usage;
            now.major_faults = now.major_faults.wrapping_sub(then.major_faults);
            now.variance -= then.variance;
            now.resident.0 = now.resident.0.wrapping_sub(then.resident.0);
        }
        for usage in change.by_stack.values_mut() {
            usage.at_peak = Bytes(0);
        }
        change.by_stack.retain(|_, stack| *stack != StackUsage::default());
        for (key, then) in &earlier.stalls {
            let now = change.stalls.entry(*key).or_default();
            *now = now.since(then);
        }
        change.stalls.retain(|_, book| book.stalls != StallTotals::default());
        // Which pages there are is no difference either.
        change.touched.clear();
        change.resident = None;
        change.counts = ImageRusage::default();
        change.copy_of = None;
        change
    }

    pub(super) fn is_zero(&self) -> bool {
        self.total.is_zero()
            && self.discarded == Amount::default()
            && self.unmatched_frees == 0
            && self.by_stack.is_empty()
    }
}
