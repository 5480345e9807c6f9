//! Marks of the user and of triggers.

use std::time::Duration;

use memtrace_model::{LossReason, ThreadsEvent, ThreadsEventKind};

use crate::file::mark_texts::MarkTexts;
use crate::interval::{Interval, Mark};

/// Maximum number of marks in a recording.
const MAX_MARKS: u32 = 100_000;

/// Recorder of marks, with the texts and the number of all marks so far.
#[derive(Debug, Default)]
pub(super) struct MarkRecorder {
    texts: MarkTexts,
    count: u32,
}

impl MarkRecorder {
    /// Records the marks among `events`. Marks beyond the limit are counted as [`LossReason::MarkLost`].
    pub(super) fn record(&mut self, events: &[ThreadsEvent], interval: &mut Interval) {
        let mut marks: Vec<(Duration, String)> =
            events.iter().filter_map(|event| mark_of(event, interval.span.end)).collect();
        marks.sort_by_key(|(at, _)| *at);
        for (at, text) in marks {
            if self.count >= MAX_MARKS {
                interval.losses.add(LossReason::MarkLost, 1);
                continue;
            }
            self.count += 1;
            interval.marks.push(Mark { at, text: self.texts.unique(text), epoch: self.count });
        }
    }
}

/// Returns the time and the text of the mark, if the event is a mark or a trigger. `end`: end of the interval.
fn mark_of(event: &ThreadsEvent, end: Duration) -> Option<(Duration, String)> {
    match &event.kind {
        ThreadsEventKind::Mark(text) => Some((event.at, text.clone())),
        ThreadsEventKind::Trigger(text) => {
            // Merges of old intervals keep each boundary at a mark. Triggers can be too frequent for this, so their
            // marks lie before the end of the interval.
            Some((event.at.min(end.saturating_sub(NANOSECOND)), format!("trigger: {text}")))
        }
        ThreadsEventKind::OomKill(_) | ThreadsEventKind::Exit(_) => None,
    }
}

const NANOSECOND: Duration = Duration::from_nanos(1);
