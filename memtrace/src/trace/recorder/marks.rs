//! Marks of a recording, from their requests until they are stored.

use std::collections::VecDeque;
use std::time::Duration;

use memtrace_history::{Interval, Mark, MarkTexts, Status};
use tokio::sync::oneshot;

use crate::run_kit::marks::{MarkRequest, StoredMark};

/// Maximum number of marks that are not stored yet.
const MAX_WAITING: usize = 64;

/// Maximum number of marks in a recording. The boundaries of marks remain when old intervals are
/// merged.
const MAX_MARKS: u32 = 100_000;

/// Marks of a recording.
#[derive(Debug, Default)]
pub(super) struct Marks {
    texts: MarkTexts,
    /// Number of marks of the recording, waiting ones included.
    count: u32,
    /// Marks that wait for the end of their interval.
    waiting: VecDeque<Pending>,
    /// Marks that the writer has received but not stored, each with the end of its interval.
    unstored: VecDeque<(Duration, Pending)>,
    /// Start of tracing. The times in replies are relative to it.
    start: Duration,
}

#[derive(Debug)]
struct Pending {
    text: String,
    epoch: u32,
    reply: Option<oneshot::Sender<Result<StoredMark, String>>>,
}

impl Pending {
    fn reply(&mut self, result: Result<StoredMark, String>) {
        // The client may have stopped waiting.
        let _ = self.reply.take().map(|reply| reply.send(result));
    }
}

impl Marks {
    /// Adds a mark. The shards must end their deltas at the mark. Returns false if the mark is refused.
    pub(super) fn add(&mut self, request: MarkRequest) -> bool {
        let MarkRequest { text, reply } = request;
        let mut mark = Pending { text, epoch: self.count + 1, reply };
        let refusal = if self.waiting.len() + self.unstored.len() >= MAX_WAITING {
            "too many other marks are not stored yet"
        } else if self.count >= MAX_MARKS {
            "the recording has 100,000 marks, the most that are possible"
        } else {
            self.count += 1;
            mark.text = self.texts.unique(mark.text);
            self.waiting.push_back(mark);
            return true;
        };
        // This is no warning, because a function can be entered thousands of times.
        log::debug!("mark {} is not set: {refusal}", mark.text);
        mark.reply(Err(refusal.to_owned()));
        false
    }

    /// Adds the earliest waiting mark to `interval`, which ends at this mark.
    pub(super) fn end_interval(&mut self, interval: &mut Interval) {
        let at = interval.span.end;
        if let Some(mark) = self.waiting.pop_front() {
            interval.marks.push(Mark { at, text: mark.text.clone(), epoch: mark.epoch });
            self.unstored.push_back((at, mark));
        }
    }

    /// Sets the start of tracing. The times of the recording begin a little earlier.
    pub(super) const fn set_start(&mut self, start: Duration) {
        self.start = start;
    }

    /// Returns true if the writer has not stored a mark that it has received.
    pub(super) fn has_unstored(&self) -> bool {
        !self.unstored.is_empty()
    }

    /// Answers the requests of stored marks, and returns these marks. If the writer fails, answers the other requests
    /// too; their marks stay in memory.
    pub(super) fn take_stored(&mut self, status: &Status) -> Vec<StoredMark> {
        let mut stored = Vec::new();
        while let Some((at, mut mark)) = self.unstored.pop_front_if(|(at, _)| *at <= status.stored_until) {
            let done = StoredMark { text: mark.text.clone(), at: at.saturating_sub(self.start) };
            mark.reply(Ok(done.clone()));
            stored.push(done);
        }
        if let Some(gap) = &status.open_gap {
            let reason = gap.reason.name();
            for (_, mark) in &mut self.unstored {
                mark.reply(Err(format!("the recording cannot be written now ({reason}); the mark waits in memory")));
            }
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use memtrace_history::{Gap, GapReason};

    use super::*;

    fn request(text: &str) -> (MarkRequest, oneshot::Receiver<Result<StoredMark, String>>) {
        let (reply, result) = oneshot::channel();
        (MarkRequest { text: text.to_owned(), reply: Some(reply) }, result)
    }

    fn end(marks: &mut Marks, second: u64) -> Vec<(String, u32)> {
        let at = Duration::from_secs(second);
        let mut interval = Interval { span: at..at, ..Interval::default() };
        marks.end_interval(&mut interval);
        interval.marks.into_iter().map(|mark| (mark.text, mark.epoch)).collect()
    }

    #[test]
    fn repeated_texts_get_numbers() {
        let mut marks = Marks::default();
        let texts = ["a", "a", "a#2", "b", "a#4", "a", "a"].map(|text| {
            assert!(marks.add(request(text).0));
            end(&mut marks, 1).remove(0).0
        });
        assert_eq!(texts, ["a", "a#2", "a#2#2", "b", "a#4", "a#3", "a#5"]);
    }

    #[test]
    fn request_is_answered_when_its_interval_is_stored() {
        let mut marks = Marks::default();
        marks.set_start(Duration::from_millis(400));
        let ((first, mut of_first), (second, mut of_second)) = (request("a"), request("a"));
        assert!(marks.add(first) && marks.add(second));
        assert_eq!([end(&mut marks, 1), end(&mut marks, 2)], [[(String::from("a"), 1)], [(String::from("a#2"), 2)]]);
        let mut status = Status { stored_until: Duration::from_millis(1999), ..Status::default() };
        let stored = StoredMark { text: String::from("a"), at: Duration::from_millis(600) };
        assert_eq!(marks.take_stored(&status), std::slice::from_ref(&stored));
        assert_eq!(of_first.try_recv().unwrap(), Ok(stored));
        assert!(of_second.try_recv().is_err() && marks.has_unstored());
        let span = Duration::ZERO..Duration::ZERO;
        status.open_gap = Some(Gap { span, reason: GapReason::DiskFull, intervals: 1 });
        assert_eq!(marks.take_stored(&status), []);
        assert!(of_second.try_recv().unwrap().unwrap_err().contains("disk_full"));
        status.stored_until = Duration::from_secs(2);
        assert_eq!(marks.take_stored(&status).len(), 1, "it is stored later");
    }

    #[test]
    fn number_of_waiting_marks_is_bounded() {
        let mut marks = Marks::default();
        for _ in 0..MAX_WAITING {
            assert!(marks.add(request("a").0));
        }
        let (request, mut result) = request("a");
        assert!(!marks.add(request));
        assert!(result.try_recv().unwrap().is_err());
    }
}
