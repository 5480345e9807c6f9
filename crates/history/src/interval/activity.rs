//! Activity of threads: merging of consecutive intervals, and the limits of their size.

use std::collections::BTreeMap;

use memtrace_model::{ActivityChanges, CallSums, EventValue, LeftOut, Span, SpanKind, SpanLabel, StackEnd};
use rustc_hash::FxHashSet;

use super::locations::PathNumber;
use super::span_limit::SpanLimit;

/// Activity of threads between two boundaries of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedActivity {
    /// Events, totals, and spans that ended between the boundaries, with the names, threads and locks that they refer
    /// to. The list of raw stacks is empty.
    pub changes: ActivityChanges,
    /// Stacks of the spans: number in the activity, call path, and end of the walk.
    pub stacks: Vec<(u32, PathNumber, StackEnd)>,
    /// Totals of the calls of allocator functions, by the number of the function's name.
    pub calls: BTreeMap<u32, CallSums>,
    /// Numbers of spans and events that were left out.
    pub left_out: LeftOut,
}

/// Maximum number of spans in a waiting interval. They take about 30 MB.
pub(crate) const MAX_WAITING_SPANS: usize = 1 << 18;

/// Maximum number of events in a waiting interval.
pub(crate) const MAX_WAITING_EVENTS: usize = 1 << 18;

/// Returns the ID of a kind in the table `span_kind`.
pub(crate) fn kind_number(kind: SpanKind) -> i64 {
    (0..).zip(SpanKind::ALL).find(|(_, known)| *known == kind).map_or(0, |(number, _)| number)
}

/// Returns the numbers of all names that the activity, its locks and the calls refer to.
pub(crate) fn names_of(changes: &ActivityChanges, calls: &BTreeMap<u32, CallSums>) -> FxHashSet<u32> {
    let text_of = |label: Option<SpanLabel>| match label {
        Some(SpanLabel::Text(text)) => Some(text),
        Some(SpanLabel::Number(_)) | None => None,
    };
    let mut names: FxHashSet<u32> = calls.keys().copied().collect();
    for span in &changes.spans {
        names.insert(span.name);
        names.extend(text_of(span.label));
    }
    for event in &changes.events {
        names.insert(event.name);
        if let EventValue::Text(text) = event.value {
            names.insert(text);
        }
    }
    names.extend(changes.totals.keys().map(|(_, name)| *name));
    names.extend(changes.locks.iter().flat_map(|(_, lock)| [lock.name, lock.place]).flatten());
    names
}

/// Adds the totals of calls in the next interval to `ours`.
pub(crate) fn add_calls(ours: &mut BTreeMap<u32, CallSums>, next: &BTreeMap<u32, CallSums>) {
    for (name, sums) in next {
        *ours.entry(*name).or_default() += sums;
    }
}

/// Removes the shortest spans if there are more than `most_spans`, and the last events if there are more than
/// `most_events`. Adds the numbers of removed spans and events to `left_out`.
pub(crate) fn bound(changes: &mut ActivityChanges, left_out: &mut LeftOut, most_spans: usize, most_events: usize) {
    let spans = changes.spans.len();
    if spans > most_spans {
        let mut limit = SpanLimit::new(most_spans as u64);
        limit.add(changes.spans.iter().map(Span::duration));
        changes.spans.retain(|span| limit.keeps(span.duration()));
        let removed = spans.saturating_sub(changes.spans.len()) as u64;
        *left_out += LeftOut { spans: removed, shorter_than: limit.shorter_than(), events: 0 };
    }
    left_out.events += changes.events.len().saturating_sub(most_events) as u64;
    changes.events.truncate(most_events);
}
