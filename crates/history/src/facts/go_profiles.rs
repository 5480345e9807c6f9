//! Moments of Go's own profiles, as facts of a history.
//!
//! The topic `go_profile` has the number of profiles and the range of their moments. The topic `go_older` has the time of
//! each first reading with blocks from before the trace, by PID.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{GroupBy, Pid, Samplers, Tick, format};

use super::row::{duration, number};
use crate::interval::{Fact, FactValue};

/// Topic of the moments.
pub(super) const MOMENTS: &str = "go_profile";
/// Topic of the first readings with blocks from before the trace.
pub(super) const OLDER: &str = "go_older";

/// Start of the note about the moments. It depends on the moment of the report, so recordings do not contain the note.
const NOTE: &str = "Go's own profile of ";

const MAIN_THREAD_NOTE: &str =
    "Go's own profile does not tell the thread of a block: all its blocks count for the main thread of the process";

/// Moments of Go's own profiles: when the last finished collection of each program was first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoProfileMoments {
    /// Number of process images with a profile.
    pub images: u64,
    /// Earliest moment of an image.
    pub first: Tick,
    /// Latest moment of an image.
    pub last: Tick,
    /// True if the first reading of a program had blocks from before the trace.
    pub has_older: bool,
    /// Time when the ledger got this reading, by process.
    pub older: BTreeMap<Pid, Tick>,
}

impl GoProfileMoments {
    /// Returns the note for a report; `None` if no profile was read. `start`: start of tracing. `to`: moment of the
    /// report. The facts of an interval can be a little later than its end.
    pub(crate) fn note(&self, start: Tick, to: Tick) -> Option<String> {
        if self.images == 0 {
            return None;
        }
        let after = |moment: Tick| {
            let after = moment.min(to).since_start().saturating_sub(start.since_start());
            format!("+{}", format::duration(after))
        };
        let (first, last) = (after(self.first), after(self.last));
        let moment = if first == last { first } else { format!("{first} to {last}") };
        let of = format::counted(self.images, "process", "processes");
        Some(format!(
            "{NOTE}{of} can lack the blocks since the last collection but one; the last one was first seen at {moment}{}",
            if self.has_older {
                "; the live and allocated blocks include those that were live before the trace"
            } else {
                ""
            }
        ))
    }

    /// Returns the times of the readings with blocks from before the trace, since the start of tracing.
    pub(crate) fn older_since(&self, start: Tick) -> BTreeMap<Pid, Duration> {
        let since_start = |at: Tick| at.since_start().saturating_sub(start.since_start());
        self.older.iter().map(|(&pid, &at)| (pid, since_start(at))).collect()
    }
}

/// Returns the facts that change the moments of a history from `before` to `now`. Facts about the processes in
/// `before.older` remain.
pub fn of_changed_go_profiles(before: &GoProfileMoments, now: &GoProfileMoments) -> Vec<Fact> {
    let is_new = |(pid, at): &(&Pid, &Tick)| before.older.get(*pid) != Some(*at);
    let older = now.older.iter().filter(is_new);
    let mut facts: Vec<_> = older.map(|(pid, at)| duration(OLDER, pid.to_string(), at.since_start())).collect();
    if before.images != now.images {
        facts.push(number(MOMENTS, "images", now.images));
    }
    if before.first != now.first {
        facts.push(duration(MOMENTS, "first_ns", now.first.since_start()));
    }
    if before.last != now.last {
        facts.push(duration(MOMENTS, "last_ns", now.last.since_start()));
    }
    if before.has_older != now.has_older {
        facts.push(number(MOMENTS, "has_older", u64::from(now.has_older)));
    }
    facts
}

/// Returns a note if a report is by thread, and has blocks of Go's own profile. `by`: keys of the report.
pub fn main_thread_note(samplers: &Samplers, by: &[GroupBy]) -> Option<String> {
    (by.contains(&GroupBy::Thread) && samplers.include_go()).then(|| String::from(MAIN_THREAD_NOTE))
}

/// Returns true if a note depends on the moment or on the keys of a report, so that each report of a recording must make
/// it again.
pub(super) fn is_of_report(note: &str) -> bool {
    note.starts_with(NOTE) || note == MAIN_THREAD_NOTE
}

/// Returns the moments that the facts contain. `moments` and `older`: facts of both topics.
pub(super) fn read(
    moments: Option<&BTreeMap<String, FactValue>>,
    older: Option<&BTreeMap<String, FactValue>>,
) -> GoProfileMoments {
    let number = |value: &FactValue| match value {
        FactValue::Number(number) => Some(*number),
        FactValue::Text(_) => None,
    };
    let moment = |item: &str| moments?.get(item).and_then(number);
    let tick = |nanoseconds: u64| Tick::at(Duration::from_nanos(nanoseconds));
    let of_process = |(pid, at): (&String, &FactValue)| Some((Pid(pid.parse().ok()?), tick(number(at)?)));
    GoProfileMoments {
        images: moment("images").unwrap_or_default(),
        first: moment("first_ns").map(tick).unwrap_or_default(),
        last: moment("last_ns").map(tick).unwrap_or_default(),
        has_older: moment("has_older").is_some_and(|flag| flag > 0),
        older: older.into_iter().flatten().filter_map(of_process).collect(),
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{SampleSource, Sampler};

    use super::*;
    use crate::facts::{RecordedFacts, of_notes};

    fn at(seconds: u64) -> Tick {
        Tick::at(Duration::from_secs(seconds))
    }

    #[test]
    fn note_has_the_first_and_the_last_moment() {
        assert_eq!(GoProfileMoments::default().note(at(2), at(60)), None);
        let moments = GoProfileMoments { images: 1, first: at(5), last: at(5), ..GoProfileMoments::default() };
        let note = moments.note(at(2), at(60)).unwrap();
        assert!(note.starts_with("Go's own profile of 1 process can lack the blocks since"), "{note}");
        assert!(note.ends_with(" first seen at +3 s"), "all its blocks are from the time of the trace: {note}");
        let moments = GoProfileMoments { images: 2, last: at(9), has_older: true, ..moments };
        let note = moments.note(at(2), at(60)).unwrap();
        assert!(note.contains(" of 2 processes ") && note.contains(" first seen at +3 s to +7 s; "), "{note}");
        let note = moments.note(at(2), at(8)).unwrap();
        assert!(note.contains(" first seen at +3 s to +6 s; "), "no moment is later than the report: {note}");
        // The profile was read before the start of the trace.
        let moments = GoProfileMoments { first: at(1), ..moments };
        let note = moments.note(at(2), at(60)).unwrap();
        assert!(note.contains(" first seen at +0 s to +7 s; the live and allocated blocks "), "{note}");
    }

    #[test]
    fn changed_moments_replace_the_earlier_ones() {
        let before = GoProfileMoments {
            images: 2,
            first: at(3),
            last: at(4),
            has_older: true,
            older: [(Pid(7), at(1)), (Pid(8), at(2))].into(),
        };
        let mut recorded = RecordedFacts::new(of_changed_go_profiles(&GoProfileMoments::default(), &before));
        assert_eq!(recorded.go_profiles(), before);
        assert_eq!(of_changed_go_profiles(&before, &before), []);
        let older = BTreeMap::from([(Pid(8), at(5)), (Pid(9), at(6))]);
        let now = GoProfileMoments { last: at(6), older, ..before.clone() };
        let facts = of_changed_go_profiles(&before, &now);
        let items: Vec<_> = facts.iter().map(|fact| (&*fact.topic, &*fact.item)).collect();
        assert_eq!(items, [("go_older", "8"), ("go_older", "9"), ("go_profile", "last_ns")]);
        recorded.add(facts);
        let older = BTreeMap::from([(Pid(7), at(1)), (Pid(8), at(5)), (Pid(9), at(6))]);
        assert_eq!(recorded.go_profiles(), GoProfileMoments { older, ..now });
        let since_start = at(6).since_start() - at(2).since_start();
        assert_eq!(now.older_since(at(2))[&Pid(9)], since_start);
    }

    #[test]
    fn reports_by_thread_have_a_note() {
        let mut samplers = Samplers::default();
        let by = [GroupBy::Comm, GroupBy::Thread];
        samplers.add(Pid(7), Sampler { source: SampleSource::Jemalloc, interval: None });
        assert_eq!(main_thread_note(&samplers, &by), None);
        samplers.add(Pid(8), Sampler { source: SampleSource::Go, interval: None });
        assert_eq!(main_thread_note(&samplers, &[GroupBy::Comm]), None);
        assert!(main_thread_note(&samplers, &by).unwrap().contains("main thread"));
    }

    #[test]
    fn notes_of_a_moment_are_not_recorded() {
        let moments = GoProfileMoments { images: 1, ..GoProfileMoments::default() };
        let mut samplers = Samplers::default();
        samplers.add(Pid(8), Sampler { source: SampleSource::Go, interval: None });
        let of_report = [moments.note(at(0), at(1)), main_thread_note(&samplers, &[GroupBy::Thread])];
        let notes: Vec<_> = of_report.into_iter().flatten().chain([String::from("other")]).collect();
        assert_eq!(notes.len(), 3);
        assert_eq!(RecordedFacts::new(of_notes(&notes)).notes(), ["other"]);
    }
}
