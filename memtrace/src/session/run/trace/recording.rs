//! Recording of a run in progress.

use super::Trace;
use crate::model::{Losses, Tick};
use crate::session::marks::MarkRequest;
use crate::session::observer::Observer;
use crate::session::run::ended_images::{SETTLED, earlier};
use crate::session::run::mark_functions::MarkFunctions;
use crate::session::run::stack_copies::find_copy;

impl Trace {
    /// Records the intervals that ended before `now`. The mmap events up to then are applied. `losses` are those of the
    /// BPF programs.
    pub(super) fn record(&mut self, now: Tick, losses: &Losses, observer: &mut dyn Observer) {
        let Some(recorder) = &mut self.recorder else { return };
        let finished = self.tables.finished_stacks();
        let mut losses = losses.clone();
        losses.merge(&self.tracker.losses());
        let mut settled = earlier(now, SETTLED);
        if let Some(accounts) = &mut self.accounts {
            accounts.receive(&mut self.tracker);
            recorder.add_accounts(accounts.take_intervals());
            // The accounts of an interval are recorded with its delta.
            settled = accounts.recorded_until().map_or(settled, |until| until.min(settled));
        }
        recorder.record(now, settled, &mut self.tracker, &find_copy(finished), &losses);
        // A reset of accounts has a note of its own.
        let are_resets = self.accounts.is_some() && !recorder.has_file();
        for mark in recorder.take_stored_marks().iter().filter(|_| !are_resets) {
            observer.note(&format!("mark {} at {:.3} s", mark.text, mark.at.as_secs_f64()));
        }
    }

    /// Sets a mark for each function that was entered. Entries that wait for others to be stored get none, and are counted.
    pub(super) fn mark_entered_functions(&mut self) {
        let requests = self.mark_functions.as_mut().map(MarkFunctions::take_requests).unwrap_or_default();
        let now = self.now();
        let (Some(functions), Some(recorder)) = (&mut self.mark_functions, &mut self.recorder) else { return };
        for request in requests {
            if recorder.add_mark(request) {
                self.shards.mark(now);
            } else {
                functions.add_lost();
            }
        }
    }

    /// Sets a mark: the interval ends now. A trace with accounts starts new water marks then.
    pub(super) fn mark(&mut self, request: MarkRequest, observer: &mut dyn Observer) {
        if self.accounts.is_some() {
            if let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.is_viewed()) {
                let mark = MarkRequest { text: request.text.clone(), reply: None };
                if recorder.add_mark(mark) {
                    self.shards.mark(self.now());
                }
            }
            return self.reset_accounts(request, observer);
        }
        match self.recorder.as_mut().filter(|recorder| recorder.keeps_marks()) {
            None => observer.note(
                "no mark is set, since neither a recording nor an output shows it; --record FILE records the run",
            ),
            Some(recorder) => {
                // Nobody else learns that a mark by the signal is refused.
                let is_signal = request.reply.is_none();
                if recorder.add_mark(request) {
                    self.shards.mark(self.now());
                } else if is_signal {
                    observer.note("no mark is set: too many others are not stored yet, or the recording has 100,000");
                }
            }
        }
    }
}
