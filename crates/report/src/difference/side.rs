//! One of the two reports of a comparison.

use std::cmp::Ordering;

use memtrace_model::format as number;
use memtrace_model::{EventClass, ImageEnd, Profile, Quantity, StackEnd, plain};

use crate::metrics::MetricView;

/// One of the two reports of a comparison.
#[derive(Clone, Debug)]
pub struct Side {
    /// Name of the report: its file, and the moment if the file is a recording.
    pub name: String,
    /// Traced target: `pid 4711 (redis-server)`.
    pub subject: String,
    pub(super) profile: Profile,
    /// True if blocks that are live in the report count as held at exit.
    pub(super) is_held: bool,
}

impl Side {
    /// Returns a report for a comparison, without details that differ between runs: addresses outside of objects, and
    /// the numbers of merged stacks.
    #[must_use]
    pub fn new(name: String, subject: String, mut profile: Profile) -> Self {
        for stack in profile.stacks.iter_mut().filter(|stack| stack.merged() > 0) {
            stack.usage[Quantity::MergedStacks] = 0;
            stack.frames = [].into();
            stack.end = StackEnd::Merged;
        }
        for frame in profile.frames.iter_mut().filter(|frame| frame.object.is_none()) {
            frame.address = None;
            frame.offset = None;
        }
        Self { name, subject, profile, is_held: false }
    }

    /// Counts live blocks as held at exit, as if the processes had ended at the end of the report. So a report of running
    /// processes is comparable with one of their end.
    #[must_use]
    pub fn held(mut self) -> Self {
        for stack in &mut self.profile.stacks {
            self.is_held |= stack.usage.live().bytes.0 > 0;
            stack.usage.end(ImageEnd::Exit, EventClass::Heap);
        }
        self
    }

    /// Returns the sum of the metric of `view` over all stacks.
    pub(super) fn value(&self, view: MetricView<'_>) -> u64 {
        self.profile.stacks.iter().map(|stack| view.value(&stack.usage)).fold(0, u64::saturating_add)
    }

    /// Returns the target and the duration: `pid 4711 (redis-server), 30 s`.
    pub(super) fn described(&self) -> String {
        format!("{}, {}", plain(&self.subject), number::duration(self.profile.run.duration))
    }
}

/// Returns the change from `before` to `after` with its sign: `+1.50 MiB`, `-3 blocks`, `±0 B`.
pub(super) fn signed(view: MetricView<'_>, before: u64, after: u64) -> String {
    let sign = match before.cmp(&after) {
        Ordering::Less => '+',
        Ordering::Equal => '±',
        Ordering::Greater => '-',
    };
    format!("{sign}{}", view.text(before.abs_diff(after)))
}
