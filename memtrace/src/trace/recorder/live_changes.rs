//! Changes of the live memory of running images over the parts of a run.

use std::ops::Range;

use memtrace_history::{Boundary, ChangesInParts, LiveChangesByStack, PathNumber, TotalKey, TrendParts};
use memtrace_model::{EventClass, ImageId, ImageUsage, LiveChanges, Snapshots, StackEnd, StackKey, Tick};
use rustc_hash::FxHashMap;

use super::run_book::RunBook;
use super::stacks::RecordedStacks;

/// Returns the changes of the live memory of running images. `book`: history with all changes. `stacks`: stacks of the
/// images. `snapshots`: totals at the end of the trace. `window`: time of the trace. Only the changes of `classes` are
/// returned.
pub(super) fn live_changes(
    book: &RunBook,
    stacks: &RecordedStacks,
    classes: &[EventClass],
    snapshots: &Snapshots,
    window: &Range<Tick>,
) -> ChangesInParts {
    if classes.is_empty() {
        return ChangesInParts::default();
    }
    let trace = window.start.since_start()..window.end.since_start();
    let in_parts = book.read(|book| {
        let parts = TrendParts::between(book.intervals(), Boundary::START, book.end(), trace.start, Some(trace.end));
        Ok((parts.times().to_vec(), book.live_changes(parts.bounds())?))
    });
    let in_parts = in_parts.unwrap_or_else(|error| {
        log::warn!("the report has no trends, because the recording cannot be read: {error}");
        None
    });
    let (parts, mut changes) = in_parts.unwrap_or_default();
    let mut by_stack = LiveChangesByStack::default();
    let images = classes.iter().filter_map(|&class| Some((class, &snapshots.0.get(&class)?.images)));
    for (class, id, usage) in images.flat_map(|(class, images)| images.iter().map(move |(&id, of)| (class, id, of))) {
        if usage.ended.is_none() {
            let of_image: FxHashMap<_, _> = changes_of(stacks, class, id, usage, &mut changes).collect();
            by_stack.insert((class, id), of_image);
        }
    }
    ChangesInParts { parts, by_stack }
}

/// Removes the changes of a running image from `changes`, and returns them by stack. Stacks with a common path share
/// one entry.
fn changes_of(
    stacks: &RecordedStacks,
    class: EventClass,
    image: ImageId,
    usage: &ImageUsage,
    changes: &mut FxHashMap<TotalKey, LiveChanges>,
) -> impl Iterator<Item = (StackKey, LiveChanges)> {
    let mut live_bytes: FxHashMap<TotalKey, (StackKey, u64)> = FxHashMap::default();
    for (&key, stack) in &usage.by_stack {
        let (path, end) = stacks.find(key.stack).unwrap_or((PathNumber::ROOT, StackEnd::FramesLost));
        // Beyond the maximum number of call paths, stacks have one sum, which is no change of any of them.
        if end == StackEnd::Merged && key.stack.has_frames() {
            continue;
        }
        let key_of_total = TotalKey { image, class, path, end, part: key.part };
        let (_, sum) = live_bytes.entry(key_of_total).or_insert((key, 0));
        *sum = sum.wrapping_add(stack.live().bytes.0);
    }
    live_bytes.into_iter().filter_map(move |(total, (key, live_bytes))| {
        // The changes are incomplete if stacks were merged or left out to limit the size of the
        // recording or the memory.
        let changes = changes.remove(&total).filter(|changes| changes.total().live.cast_unsigned() == live_bytes);
        Some((key, changes?))
    })
}
