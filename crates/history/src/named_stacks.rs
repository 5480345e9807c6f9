//! Stacks with the names of their calls, and the profile of each event class.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use memtrace_model::{
    AbsAddr, EventClass, FileState, Frame, Losses, MemcgProfile, Names, OomKill, PathObject, Pid, ProcessProfile,
    Profile, ProfileRows, Quantity, RunFacts, StackLabels, StackProfile, Unnamed,
};
use memtrace_model::{format, printable};

use super::assemble::name_stacks;
use super::exact_totals::ExactTotals;
use super::frames_of_calls::FramesOfCalls;
use super::report_stacks::{ReportClass, ReportStacks, StallsByCgroup};

/// Stacks of all event classes with the names of their calls.
#[derive(Debug)]
pub struct NamedClasses<'a> {
    stacks: Stacks<'a>,
    frames: FramesOfCalls,
    /// Number of event classes that were not taken yet.
    left: usize,
    /// Notes about missing names.
    notes: Vec<String>,
}

/// Stacks at a moment of a history, or at the end of a run.
#[derive(Debug)]
pub(super) enum Stacks<'a> {
    OfHistory(Box<ReportStacks>),
    OfRun(&'a ReportStacks),
}

impl Stacks<'_> {
    const fn get(&self) -> &ReportStacks {
        match self {
            Self::OfHistory(stacks) => stacks,
            Self::OfRun(stacks) => stacks,
        }
    }

    /// Returns the stacks of `class`. Removes the stacks of a history, because they take ten times as much memory
    /// with names.
    fn take(&mut self, class: EventClass) -> Option<ReportClass> {
        match self {
            Self::OfHistory(stacks) => stacks.classes.remove(&class),
            Self::OfRun(stacks) => stacks.classes.get(&class).cloned(),
        }
    }
}

impl<'a> NamedClasses<'a> {
    /// Finds the frames of all calls in the stacks of a run at its end.
    ///
    /// Frames without a name keep their address and the reason.
    #[must_use]
    pub fn new(end: &'a ExactTotals, names: &dyn Names) -> Self {
        Self::of(Stacks::OfRun(&end.stacks), names)
    }

    /// Finds the frames of all calls in `stacks`.
    pub(super) fn of(stacks: Stacks<'a>, names: &dyn Names) -> Self {
        let ReportStacks { paths, names: generated, classes } = stacks.get();
        let left = classes.len();
        let mut frames: Vec<Box<[Frame]>> = vec![Box::default(); paths.number_of_calls()];
        let mut closed = 0;
        let mut lost = Vec::new();
        for (object, calls) in paths.in_objects() {
            // Each call of `names.frames` reads one object, because debug information is large: it is released
            // before the next object is read.
            let offsets: Vec<_> = calls.keys().copied().collect();
            let frames_of_object = names.frames(object, &offsets);
            let mut all = frames_of_object.iter().flatten();
            // The run has noted the objects that it could not read, and the recording contains these notes.
            let is_closed =
                object.file != FileState::Recorded && all.any(|frame| frame.name == Err(Unnamed::ObjectClosed));
            closed += u64::from(is_closed);
            lost.extend(lost_names(object, &frames_of_object));
            for (calls, frames_of_call) in calls.into_values().zip(frames_of_object) {
                calls.into_iter().for_each(|call| frames[call].clone_from(&frames_of_call));
            }
        }
        for (address, reason, call) in paths.outside_objects() {
            frames[call] = [frame_outside_objects(address, reason)].into();
        }
        for (name, call) in paths.generated() {
            frames[call] = [generated.frame(name)].into();
        }
        for call in paths.by_frame_pointer() {
            frames[call].iter_mut().for_each(|frame| frame.by_frame_pointer = true);
        }
        let closed = (closed > 0).then(|| {
            let objects = format::counted(closed, "deleted object", "deleted objects");
            format!("the functions of {objects} have no names, because too many deleted files were open")
        });
        let notes = generated.advice().into_iter().chain(closed).chain(notes_of_lost_names(lost)).collect();
        Self { stacks, frames: FramesOfCalls::new(frames), left, notes }
    }

    /// Returns the stacks of `class`. This function must be called at most once for each class. A class that was
    /// not traced has no stacks.
    #[must_use]
    pub fn take(&mut self, class: EventClass) -> NamedStacks {
        let Some(ReportClass { processes, stalls, oom_kills, losses }) = self.stacks.take(class) else {
            return NamedStacks { notes: self.notes.clone(), ..NamedStacks::default() };
        };
        self.left = self.left.saturating_sub(1);
        let mut frames = if self.left == 0 {
            // The last class needs no copy. Most runs trace only one class.
            std::mem::take(&mut self.frames)
        } else {
            self.frames.clone()
        };
        let paths = &self.stacks.get().paths;
        let keys = processes.iter().flat_map(|process| process.totals.keys());
        let is_used = paths.used_calls(keys.map(|key| key.path));
        frames.retain(&is_used);
        let (processes, stacks) = name_stacks(processes, paths, &frames);
        NamedStacks {
            processes,
            stacks,
            frames: frames.into_frames(),
            stalls,
            oom_kills: oom_kills.into_iter().collect(),
            losses,
            notes: self.notes.clone(),
        }
    }
}

/// Maximum number of notes about objects with lost names of functions.
const MAX_LOST_NAMES: usize = 10;

/// Returns at most [`MAX_LOST_NAMES`] of the `notes`, and one note with the number of further objects.
fn notes_of_lost_names(mut notes: Vec<String>) -> Vec<String> {
    let others = notes.len().saturating_sub(MAX_LOST_NAMES);
    if others > 0 {
        notes.truncate(MAX_LOST_NAMES);
        let objects = format::counted(others as u64, "further object", "further objects");
        notes.push(format!("the functions of {objects} have no names, because reading them took too long or failed"));
    }
    notes
}

/// Returns a note if names of functions in `object` were lost because of its file. For the objects of a recording, the run has
/// noted this already.
fn lost_names(object: &PathObject, frames: &[Box<[Frame]>]) -> Option<String> {
    let reason_of = |frames: &[Frame]| {
        Unnamed::LOST_NAMES.into_iter().find(|&lost| frames.iter().any(|frame| frame.name == Err(lost)))
    };
    let mut reasons = frames.iter().filter_map(|frames| reason_of(frames));
    let reason = reasons.next().filter(|_| object.file != FileState::Recorded)?;
    let calls = format::counted(1 + reasons.count() as u64, "function has", "functions have");
    let path = printable(&object.object.path);
    Some(format!("{path}: {calls} no name, because {} ({})", reason.explanation(), reason.name()))
}

fn frame_outside_objects(address: Option<AbsAddr>, reason: Unnamed) -> Frame {
    Frame { address, ..Frame::new(Err(reason)) }
}

/// Stacks of an event class with the names of their calls. Together with the facts of the run they become a [`Profile`].
#[derive(Debug, Default)]
pub struct NamedStacks {
    processes: Vec<ProcessProfile>,
    stacks: Vec<StackProfile>,
    frames: Vec<Frame>,
    /// Stalls of all images by cgroup.
    stalls: StallsByCgroup,
    oom_kills: Vec<OomKill>,
    losses: Losses,
    notes: Vec<String>,
}

/// Maximum time that a ledger takes to apply a reading of a profile. It applies its waiting records first.
const LATE: Duration = Duration::from_millis(250);

impl NamedStacks {
    /// Removes the first change of each sampled stack. This change contains the blocks from before the trace, which are not
    /// growth. `parts`: times of the changes. `older`: time of the reading with such blocks, by process.
    pub(crate) fn without_older(mut self, parts: &[Range<Duration>], older: &BTreeMap<Pid, Duration>) -> Self {
        let Some(start) = parts.first().map(|part| part.start).filter(|_| !older.is_empty()) else { return self };
        let part_at = |time: Duration| match parts.iter().position(|part| time < part.end) {
            // The last readings end after the trace.
            None => Some(parts.len() - 1),
            part => part.filter(|_| time >= start),
        };
        let Self { processes, stacks, .. } = &mut self;
        for stack in stacks {
            let is_sampled =
                [Quantity::HeldSamples, Quantity::AllocSamples].iter().any(|&samples| stack.usage.get(samples) != 0);
            let Some(&at) = processes.get(stack.process).and_then(|process| older.get(&process.pid)) else { continue };
            let changes = stack.live_changes.as_slice();
            let has_allocated = |part: &usize| changes.get(*part).is_some_and(|change| change.alloc != 0);
            let counted = [at, at.saturating_add(LATE)].into_iter().filter_map(part_at).find(has_allocated);
            if let Some(part) = counted.filter(|_| is_sampled) {
                stack.live_changes.clear(part);
            }
        }
        self
    }

    /// Returns the profile of a run. `earlier`: profiles at earlier moments. `labels` returns the labels of the
    /// stacks.
    #[must_use]
    pub fn into_profile(
        self,
        run: RunFacts,
        earlier: Vec<(Duration, Profile)>,
        labels: impl FnOnce(&Profile) -> Option<StackLabels>,
    ) -> Profile {
        let Self { processes, stacks, frames, stalls, oom_kills, losses, notes } = self;
        let mut distinct: Vec<String> = Vec::new();
        // A recording contains the notes of its run about names, so the same notes can occur twice.
        for note in run.notes.into_iter().chain(notes) {
            if !distinct.contains(&note) {
                distinct.push(note);
            }
        }
        let run = RunFacts { notes: distinct, ..run };
        let cgroup = |(id, stalls)| {
            let (path, memory) = Option::and_then(id, |id| run.cgroups.get(&id)).cloned().unzip();
            MemcgProfile { id, path: path.map(|path| path.to_string_lossy().into_owned()), stalls, memory }
        };
        let cgroups = stalls.into_iter().map(cgroup).collect();
        let rows = ProfileRows { processes, stacks, frames, labels: Vec::new(), oom_kills, cgroups, losses };
        Profile::new(run, earlier, rows, labels)
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{LiveChanges, Part, PartChange, Quantities, StackEnd};

    use super::*;

    /// Returns the changes of live bytes in four parts of two seconds from `start` on. The first reading of process 7 is at
    /// `at`. All changes are allocations.
    fn changes(pid: u32, samples: u64, start: u64, at: Duration, live: [i64; 4]) -> Vec<i64> {
        let second = Duration::from_secs;
        let parts: Vec<_> = (0..4).map(|part| second(start + 2 * part)..second(start + 2 * part + 2)).collect();
        let mut live_changes = LiveChanges::default();
        for (part, live) in live.into_iter().enumerate() {
            live_changes.add(part, 4, PartChange { live, alloc: live.unsigned_abs() });
        }
        let usage = Quantities::ZERO.with(Quantity::AllocSamples, samples);
        let stack = StackProfile::new(0, Part::WHOLE, Vec::new().into(), StackEnd::Complete);
        let stacks = vec![StackProfile { usage, live_changes, ..stack }];
        let processes = vec![ProcessProfile::new(Pid(pid), "go")];
        let named = NamedStacks { processes, stacks, ..NamedStacks::default() };
        let named = named.without_older(&parts, &[(Pid(7), at)].into());
        named.stacks[0].live_changes.as_slice().iter().map(|change| change.live).collect()
    }

    #[test]
    fn blocks_from_before_the_trace_are_no_growth() {
        let at = Duration::from_secs(3);
        assert_eq!(changes(7, 5, 0, at, [0, 90, 1, 2]), [0, 0, 1, 2]);
        assert_eq!(changes(8, 5, 0, at, [0, 90, 1, 2]), [0, 90, 1, 2], "the process has no such reading");
        assert_eq!(changes(7, 0, 0, at, [0, 90, 1, 2]), [0, 90, 1, 2], "the stack has exact blocks");
        // All growth after the reading counts.
        assert_eq!(changes(7, 5, 0, at, [0, 0, 1, 2]), [0, 0, 1, 2]);
        assert_eq!(changes(7, 5, 0, Duration::ZERO, [90, 3, 1, 2]), [0, 3, 1, 2]);
        // The reading is not in the shown time.
        assert_eq!(changes(7, 5, 6, at, [4, 3, 1, 2]), [4, 3, 1, 2]);
    }

    #[test]
    fn a_late_reading_counts_in_the_next_part() {
        let at = Duration::from_millis(3900);
        assert_eq!(changes(7, 5, 0, at, [0, 0, 90, 2]), [0, 0, 0, 2]);
        assert_eq!(changes(7, 5, 0, at, [0, 90, 1, 2]), [0, 0, 1, 2]);
        assert_eq!(changes(7, 5, 4, at, [90, 3, 1, 2]), [0, 3, 1, 2]);
        assert_eq!(changes(7, 5, 0, Duration::from_secs(9), [0, 0, 1, 90]), [0, 0, 1, 0]);
    }
}
