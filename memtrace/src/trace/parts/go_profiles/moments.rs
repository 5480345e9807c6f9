//! Moments of the heap profiles: when the last finished collection of each program was first seen.

use std::collections::BTreeMap;

use memtrace_model::{ImageId, Tick, format};

/// Moments of the last profiles of all images.
#[derive(Debug, Default)]
pub(super) struct Moments {
    running: BTreeMap<ImageId, Tick>,
    /// Number of ended images, and their first and last moment.
    ended: u64,
    range: Option<(Tick, Tick)>,
    /// True if the first reading of a program had blocks from before the trace.
    has_older: bool,
}

impl Moments {
    /// Sets the moment of the last profile of an image. `has_older`: true if the image ran before the trace.
    pub(super) fn set(&mut self, id: ImageId, moment: Tick, has_older: bool) {
        self.running.insert(id, moment);
        self.has_older |= has_older;
    }

    /// Records that an image has ended.
    pub(super) fn end(&mut self, id: ImageId) {
        if let Some(moment) = self.running.remove(&id) {
            self.ended += 1;
            self.range = joined(self.range, moment);
        }
    }

    /// Returns a note for the report; `None` if no profile was read. `start`: start of the trace.
    pub(super) fn note(&self, start: Tick) -> Option<String> {
        let (first, last) = self.running.values().fold(self.range, |range, &moment| joined(range, moment))?;
        let after = |tick: Tick| {
            let after = tick.since_start().saturating_sub(start.since_start());
            format!("+{}", format::duration(after))
        };
        let moment = if first == last { after(first) } else { format!("{} to {}", after(first), after(last)) };
        let of = format::counted(self.running.len() as u64 + self.ended, "process", "processes");
        Some(format!(
            "Go's own profile of {of} can lack the blocks since the last collection but one; the last one was first seen \
             at {moment}{}",
            if self.has_older {
                "; the live and allocated blocks include those that were live before the trace"
            } else {
                ""
            }
        ))
    }
}

/// Returns the smallest range with both arguments.
fn joined(range: Option<(Tick, Tick)>, moment: Tick) -> Option<(Tick, Tick)> {
    let (first, last) = range.unwrap_or((moment, moment));
    Some((first.min(moment), last.max(moment)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::Pid;

    use super::*;

    fn at(seconds: u64) -> Tick {
        Tick::at(Duration::from_secs(seconds))
    }

    fn id(pid: u32) -> ImageId {
        ImageId { pid: Pid(pid), ordinal: 0 }
    }

    #[test]
    fn note_has_the_first_and_the_last_moment() {
        let mut moments = Moments::default();
        assert_eq!(moments.note(at(2)), None);
        moments.set(id(1), at(3), false);
        moments.set(id(1), at(5), false);
        let note = moments.note(at(2)).unwrap();
        assert!(note.starts_with("Go's own profile of 1 process can lack the blocks since"), "{note}");
        assert!(note.ends_with(" first seen at +3 s"), "all its blocks are from the time of the trace: {note}");
        moments.set(id(2), at(9), true);
        moments.end(id(2));
        moments.end(id(3));
        let note = moments.note(at(2)).unwrap();
        assert!(note.contains(" of 2 processes ") && note.contains(" first seen at +3 s to +7 s; "), "{note}");
        // The profile was read before the start of the trace.
        moments.set(id(1), at(1), false);
        assert!(moments.note(at(2)).unwrap().contains(" first seen at +0 s to +7 s; the live and allocated blocks "));
    }
}
