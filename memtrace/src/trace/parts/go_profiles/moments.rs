//! Moments of the heap profiles: when the last finished collection of each program was first seen.

use std::collections::BTreeMap;

use memtrace_history::facts::{self, GoProfileMoments};
use memtrace_model::{ImageId, Pid, Tick};

use crate::trace::context::Context;

/// Moments of the last profiles of all images.
#[derive(Debug, Default)]
pub(super) struct Moments {
    running: BTreeMap<ImageId, Tick>,
    /// Number of ended images, and their first and last moment.
    ended: u64,
    range: Option<(Tick, Tick)>,
    /// True if the first reading of a program had blocks from before the trace.
    has_older: bool,
    /// Time when the ledger got this reading, by running process.
    older: BTreeMap<Pid, Tick>,
    /// Moments that the history has.
    recorded: GoProfileMoments,
}

impl Moments {
    /// Sets the moment of the last profile of an image.
    pub(super) fn set(&mut self, id: ImageId, moment: Tick) {
        self.running.insert(id, moment);
    }

    /// Sets the time when the ledger gets a reading with blocks from before the trace.
    pub(super) fn set_older(&mut self, id: ImageId, now: Tick) {
        self.has_older = true;
        self.older.insert(id.pid, now);
    }

    /// Records that an image has ended.
    pub(super) fn end(&mut self, id: ImageId) {
        if let Some(moment) = self.running.remove(&id) {
            self.ended += 1;
            self.range = Some(joined(self.range, moment));
            self.older.remove(&id.pid);
        }
    }

    /// Returns the moments of all images.
    pub(super) fn all(&self) -> GoProfileMoments {
        let range = self.running.values().fold(self.range, |range, &moment| Some(joined(range, moment)));
        let (first, last) = range.unwrap_or_default();
        GoProfileMoments {
            images: self.running.len() as u64 + self.ended,
            first,
            last,
            has_older: self.has_older,
            older: self.older.clone(),
        }
    }

    /// Adds the moments that have changed to the history of the run, so that reports of earlier moments have them.
    pub(super) fn record(&mut self, context: &mut Context) {
        let Some(recorder) = &mut context.recorder else { return };
        let now = self.all();
        if self.recorded != now {
            recorder.add_facts(facts::of_changed_go_profiles(&self.recorded, &now));
            self.recorded = now;
        }
    }
}

/// Returns the smallest range with both arguments.
fn joined(range: Option<(Tick, Tick)>, moment: Tick) -> (Tick, Tick) {
    let (first, last) = range.unwrap_or((moment, moment));
    (first.min(moment), last.max(moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(pid: u32) -> ImageId {
        ImageId { pid: Pid(pid), ordinal: 0 }
    }

    #[test]
    fn moments_are_those_of_running_and_ended_images() {
        let mut moments = Moments::default();
        assert_eq!(moments.all(), GoProfileMoments::default());
        moments.set(id(1), Tick(3));
        moments.set(id(1), Tick(5));
        let of_one = GoProfileMoments { images: 1, first: Tick(5), last: Tick(5), ..GoProfileMoments::default() };
        assert_eq!(moments.all(), of_one);
        moments.set(id(2), Tick(9));
        moments.set_older(id(2), Tick(8));
        let older = BTreeMap::from([(Pid(2), Tick(8))]);
        let of_two = GoProfileMoments { images: 2, last: Tick(9), has_older: true, older, ..of_one };
        assert_eq!(moments.all(), of_two);
        moments.end(id(2));
        moments.end(id(3));
        let of_two = GoProfileMoments { older: BTreeMap::new(), ..of_two };
        assert_eq!(moments.all(), of_two, "the moment of an ended image remains");
        moments.set(id(1), Tick(1));
        assert_eq!(moments.all(), GoProfileMoments { first: Tick(1), ..of_two });
    }
}
