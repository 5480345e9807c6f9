//! Symbolized stacks of a run, and the profile of each event class.

use std::collections::BTreeMap;

use super::assemble::name_stacks;
use super::call_paths::CallPaths;
use super::frames_of_calls::FramesOfCalls;
use super::locate::{LocatedClass, LocatedStacks, StallsByCgroup};
use crate::model::format;
use crate::model::{EventClass, Frame, Losses, MemcgProfile, OomKill, ProcessProfile, Profile, RunFacts, StackProfile};

/// Symbolized stacks of all event classes.
#[derive(Debug)]
pub struct SymbolizedClasses {
    paths: CallPaths,
    frames: FramesOfCalls,
    classes: BTreeMap<EventClass, LocatedClass>,
    /// Notes about missing names.
    notes: Vec<String>,
}

impl SymbolizedClasses {
    /// `frames` are those of each call in `located`, outermost first. The files of `closed` objects were closed before
    /// their functions had names.
    pub(super) fn new(located: LocatedStacks, frames: Vec<Box<[Frame]>>, closed: u64) -> Self {
        let LocatedStacks { paths, names, classes } = located;
        let closed = (closed > 0).then(|| {
            let objects = format::counted(closed, "deleted object", "deleted objects");
            format!("the functions of {objects} have no names, because too many deleted files were open")
        });
        let notes = names.advice().into_iter().chain(closed).collect();
        Self { paths, frames: FramesOfCalls::new(frames), classes, notes }
    }

    /// Returns `class` and removes it. A class that was not traced has no stacks.
    #[must_use]
    pub fn take(&mut self, class: EventClass) -> Symbolized {
        let LocatedClass { processes, stalls, oom_kills, losses } = self.classes.remove(&class).unwrap_or_default();
        let mut frames = if self.classes.is_empty() {
            // Without a copy: most runs trace one class, whose calls are all calls.
            std::mem::take(&mut self.frames)
        } else {
            self.frames.clone()
        };
        let totals = processes.iter().flat_map(|process| process.totals.iter());
        let is_used = self.paths.used_calls(totals.map(|(key, _)| key.path));
        frames.retain(&is_used);
        let (processes, stacks) = name_stacks(processes, &self.paths, &frames);
        Symbolized {
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

/// Symbolized stacks of an event class. Together with the facts of the run they become a [`Profile`].
#[derive(Debug, Default)]
pub struct Symbolized {
    processes: Vec<ProcessProfile>,
    stacks: Vec<StackProfile>,
    frames: Vec<Frame>,
    /// Stalls of all images by control group.
    stalls: StallsByCgroup,
    oom_kills: Vec<OomKill>,
    losses: Losses,
    notes: Vec<String>,
}

impl Symbolized {
    /// Returns the number of allocations of all processes.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.processes.iter().map(|process| process.total.alloc.count).sum()
    }

    /// Returns the complete profile.
    #[must_use]
    pub fn into_profile(self, run: RunFacts) -> Profile {
        let Self { processes, stacks, frames, stalls, oom_kills, losses, notes: advice } = self;
        let RunFacts {
            class,
            page_sample,
            duration,
            window,
            parts,
            timeline,
            activity,
            allocators,
            tags,
            killed_cgroups,
            reclaim,
            cgroups,
            filtered,
            older,
            touches,
            untraced,
            notes,
            debug_files,
            cost,
        } = run;
        let cgroup = |(id, stalls)| {
            let (path, memory) = Option::and_then(id, |id| cgroups.get(&id)).cloned().unzip();
            MemcgProfile { id, path: path.map(|path| path.to_string_lossy().into_owned()), stalls, memory }
        };
        Profile {
            class,
            page_sample,
            duration,
            window,
            parts,
            timeline,
            earlier: Vec::new(),
            activity,
            processes,
            stacks,
            frames,
            labels: Vec::new(),
            allocators,
            tags,
            oom_kills,
            cgroup_paths: killed_cgroups,
            cgroups: stalls.into_iter().map(cgroup).collect(),
            reclaim,
            losses,
            filtered,
            older,
            touches,
            untraced,
            notes: notes.into_iter().chain(advice).collect(),
            debug_files,
            cost,
        }
    }
}
