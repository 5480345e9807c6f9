//! Changes of the live memory of running images over the parts of a run.

use std::ops::Range;

use memtrace_history::{Boundary, ChangesInParts, LiveChangesByStack, PathNumber, TotalKey, TrendParts};
use memtrace_model::{EventClass, ImageId, ImageUsage, LiveChanges, Snapshots, StackEnd, StackKey, Tick};
use rustc_hash::FxHashMap;

use super::deferral;
use super::run_book::RunBook;
use super::stacks::RecordedStacks;

/// Returns the changes of the live memory of running images. `book`: history with all changes. `stacks`: stacks of the images.
/// `snapshots`: totals at the end of the trace. `window`: time of the trace. Only the changes of `classes` are returned.
/// `is_late`: true for an image with changes that are late by up to [`deferral::AGE`]. If the parts are shorter than this, the
/// late changes would be in a wrong part, so they are left out.
pub(super) fn live_changes(
    book: &RunBook,
    stacks: &RecordedStacks,
    classes: &[EventClass],
    snapshots: &Snapshots,
    window: &Range<Tick>,
    is_late: impl Fn(ImageId) -> bool,
) -> ChangesInParts {
    if classes.is_empty() {
        return ChangesInParts::default();
    }
    let trace = window.start.since_start()..window.end.since_start();
    let trace_length = trace.end.saturating_sub(trace.start);
    let in_parts = book.read(|book| {
        let parts = TrendParts::between(book.intervals(), Boundary::START, book.end(), trace.start, Some(trace.end));
        Ok((parts.times().to_vec(), book.live_changes(parts.bounds())?))
    });
    let in_parts = in_parts.unwrap_or_else(|error| {
        log::warn!("the report has no trends, because the recording cannot be read: {error}");
        None
    });
    let (parts, mut changes) = in_parts.unwrap_or_default();
    let are_long = deferral::AGE * parts.len() as u32 <= trace_length;
    let mut by_stack = LiveChangesByStack::default();
    let images = classes.iter().filter_map(|&class| Some((class, &snapshots.0.get(&class)?.images)));
    for (class, id, usage) in images.flat_map(|(class, images)| images.iter().map(move |(&id, of)| (class, id, of))) {
        if usage.ended.is_none() && (are_long || !is_late(id)) {
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
        // The history also has other stacks in this sum: those beyond the maximum number of call paths, and those that it
        // merged.
        if end == StackEnd::Merged {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use memtrace_history::{Change, Interval, LivePaths, MemoryBook};
    use memtrace_model::{
        AbsAddr, Amount, Bytes, FileOffset, Mapping, Object, Part, PartChange, Pid, ProcessImage, Quantities, Quantity,
        Snapshot, Stack, StackId, Stacks,
    };

    use super::*;
    use crate::trace::recorder::header_of_run;

    const IMAGE: ImageId = ImageId { pid: Pid(7), ordinal: 0 };
    const STACK: StackId = StackId(1000);
    /// Path of the first stack with frames. Each has two calls.
    const PATH: PathNumber = PathNumber(2);

    /// Returns stacks with frames. Only the first stack has a path, because its two calls use up the limit of two paths.
    fn stacks_of(ids: impl IntoIterator<Item = StackId>) -> RecordedStacks {
        let object = Object { path: "/lib".into(), handle: None, build_id: None, root: None };
        let (start, end, offset) = (AbsAddr(0), AbsAddr(1 << 20), FileOffset(0));
        let mapping = Mapping { start, end, offset, object: Some(Arc::new(object)) };
        let image = ProcessImage { mappings: vec![mapping], ..ProcessImage::default() };
        let mut stacks = RecordedStacks::new(LivePaths::new(2, 0));
        for id in ids {
            let frames = [AbsAddr(id.0), AbsAddr(1)].into();
            let stack = Stack { frames, end: StackEnd::Complete, taken: Duration::ZERO };
            stacks.add(IMAGE, &image, &Stacks::from([(id, stack)]), None);
        }
        stacks
    }

    const fn live(bytes: u64) -> Quantities {
        Quantities::ZERO.with_amount(Quantity::LiveBytes, Amount::one(Bytes(bytes)))
    }

    const fn key(path: PathNumber, end: StackEnd) -> TotalKey {
        TotalKey { image: IMAGE, class: EventClass::Heap, path, end, part: Part::WHOLE }
    }

    /// Returns the live bytes of the stacks that have changes. `all`: stacks, each with its path and its end in the history,
    /// and its live bytes.
    fn live_bytes_with_changes(all: &[(StackId, PathNumber, StackEnd, u64)]) -> Vec<i64> {
        let stacks = stacks_of(all.iter().map(|(id, ..)| *id).filter(|id| id.has_frames()));
        let mut usage = ImageUsage::default();
        let mut changes: FxHashMap<TotalKey, LiveChanges> = FxHashMap::default();
        for &(id, path, end, bytes) in all {
            usage.by_stack.insert(id.into(), live(bytes));
            let change = PartChange { live: bytes.cast_signed(), alloc: bytes };
            changes.entry(key(path, end)).or_default().add(0, 8, change);
        }
        let found = changes_of(&stacks, EventClass::Heap, IMAGE, &usage, &mut changes);
        found.map(|(_, changes)| changes.total().live).collect()
    }

    #[test]
    fn sums_of_merged_stacks_have_no_changes() {
        let known = (STACK, PATH, StackEnd::Complete, 100);
        assert_eq!(live_bytes_with_changes(&[known]), [100]);
        let merged = |id, bytes| (id, PathNumber::ROOT, StackEnd::Merged, bytes);
        // The ledger has merged stacks.
        assert_eq!(live_bytes_with_changes(&[known, merged(StackId::OTHER, 7)]), [100]);
        // The second stack is beyond the maximum number of call paths.
        assert_eq!(live_bytes_with_changes(&[known, merged(StackId(1001), 20)]), [100]);
        // The history has merged the stack.
        assert_eq!(live_bytes_with_changes(&[merged(STACK, 100)]), [0_i64; 0]);
    }

    /// Returns true if a stack has changes after ten parts. `is_late`: true if the changes of its image are late.
    fn has_changes(part: Duration, is_late: bool) -> bool {
        let config = crate::cli::resolved_trace("--all").expect("a valid configuration");
        let header = header_of_run(&config, part, SystemTime::UNIX_EPOCH);
        let mut book = RunBook::Memory { book: Box::new(MemoryBook::new(header, Bytes(1 << 20))), end: Duration::ZERO };
        for index in 0..10 {
            let changes = vec![Change { key: key(PATH, StackEnd::Complete), usage: live(10) }];
            book.push(Interval { span: part * index..part * (index + 1), changes, ..Interval::default() });
        }
        let usage = ImageUsage { by_stack: [(STACK.into(), live(100))].into(), ..ImageUsage::default() };
        let snapshot = Snapshot { images: [(IMAGE, usage)].into(), ..Snapshot::default() };
        let snapshots = Snapshots([(EventClass::Heap, snapshot)].into());
        let window = Tick::at(Duration::ZERO)..Tick::at(part * 10);
        let classes = [EventClass::Heap];
        let changes = live_changes(&book, &stacks_of([STACK]), &classes, &snapshots, &window, |_| is_late);
        assert_eq!(changes.parts.len(), 10);
        changes.by_stack.values().any(|of_image| !of_image.is_empty())
    }

    #[test]
    fn late_changes_need_long_parts() {
        let [short, long] = [59, 61].map(Duration::from_secs);
        assert_eq!([short, long].map(|part| has_changes(part, false)), [true, true]);
        assert_eq!([short, long].map(|part| has_changes(part, true)), [false, true]);
    }
}
