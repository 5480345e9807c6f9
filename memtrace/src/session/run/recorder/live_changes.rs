//! Changes of the live memory of running images over the parts of a recorded run.

use std::ops::Range;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::{RecordedFile, Recorder};
use crate::model::{EventClass, ImageId, ImageUsage, LiveChanges, Snapshots, StackEnd, StackKey, Tick};
use crate::recording::{Boundary, Error, PathNumber, Recording, TotalKey};
use crate::session::trend_parts::TrendParts;
use crate::symbolize::LiveChangesByStack;

/// Changes of live memory over parts of a run.
#[derive(Debug, Default)]
pub(in crate::session::run) struct ChangesInParts {
    /// The parts, since the start of tracing; empty if there are too few intervals.
    pub(in crate::session::run) parts: Vec<Range<Duration>>,
    pub(in crate::session::run) by_stack: LiveChangesByStack,
}

impl Recorder {
    /// Waits until all changes are stored, and returns those of the live memory of running images. `snapshots` are the
    /// totals at the end of the trace, which was during `window`. Only `classes` are read.
    pub(in crate::session::run) fn live_changes(
        &self,
        classes: &[EventClass],
        snapshots: &Snapshots,
        window: &Range<Tick>,
    ) -> ChangesInParts {
        let Some(file) = self.file.as_ref().filter(|_| !classes.is_empty()) else { return ChangesInParts::default() };
        if file.writer.settle().open_gap.is_some() {
            return ChangesInParts::default();
        }
        let (parts, mut changes) = read(file, window).unwrap_or_else(|error| {
            log::warn!("the report has no trends, because the recording cannot be read: {error}");
            Default::default()
        });
        let mut by_stack = LiveChangesByStack::default();
        let images = classes.iter().filter_map(|&class| Some((class, &snapshots.0.get(&class)?.images)));
        for (class, id, usage) in images.flat_map(|(class, images)| images.iter().map(move |(&id, of)| (class, id, of)))
        {
            if usage.ended.is_none() {
                let of_image: FxHashMap<_, _> = self.changes_of(class, id, usage, &mut changes).collect();
                by_stack.insert((class, id), of_image);
            }
        }
        ChangesInParts { parts, by_stack }
    }

    /// Removes the changes of a running image from `changes`. Stacks with a common path have theirs in common.
    fn changes_of(
        &self,
        class: EventClass,
        image: ImageId,
        usage: &ImageUsage,
        changes: &mut FxHashMap<TotalKey, LiveChanges>,
    ) -> impl Iterator<Item = (StackKey, LiveChanges)> {
        let mut live_bytes: FxHashMap<TotalKey, (StackKey, u64)> = FxHashMap::default();
        for (&key, stack) in &usage.by_stack {
            let (path, end) = self.stacks.find(key.stack).unwrap_or((PathNumber::ROOT, StackEnd::FramesLost));
            let key_of_total = TotalKey { image, class, path, end, part: key.part };
            let (_, sum) = live_bytes.entry(key_of_total).or_insert((key, 0));
            *sum = sum.wrapping_add(stack.usage.live.bytes.0);
        }
        live_bytes.into_iter().filter_map(move |(total, (key, live_bytes))| {
            // A part of the changes is under another key if stacks were merged to limit the size of the recording.
            let changes = changes.remove(&total).filter(|changes| changes.total().live.cast_unsigned() == live_bytes);
            Some((key, changes?))
        })
    }
}

/// Reads the changes of all parts.
fn read(
    file: &RecordedFile,
    window: &Range<Tick>,
) -> Result<(Vec<Range<Duration>>, FxHashMap<TotalKey, LiveChanges>), Error> {
    let recording = Recording::open_while_written(&file.path)?;
    let (start, end) = (window.start.since_start(), window.end.since_start());
    let parts = TrendParts::between(&recording, Boundary::START, recording.end(), start, Some(end));
    Ok((parts.times().to_vec(), recording.live_changes(parts.bounds())?))
}
