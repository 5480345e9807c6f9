//! Symbolized snapshot, and its profile.

use std::collections::BTreeMap;

use super::assemble::NamedStacks;
use crate::model::{EventClass, Losses, MemcgProfile, OomKill, Profile, RunFacts};

/// Symbolized snapshots of all event classes.
#[derive(Debug)]
pub struct SymbolizedClasses(BTreeMap<EventClass, Symbolized>);

impl SymbolizedClasses {
    pub(super) const fn new(classes: BTreeMap<EventClass, Symbolized>) -> Self {
        Self(classes)
    }

    /// Returns `class` and removes it. A class without a snapshot has no stacks.
    #[must_use]
    pub fn take(&mut self, class: EventClass) -> Symbolized {
        self.0.remove(&class).unwrap_or_default()
    }
}

/// Symbolized snapshot. Together with the facts of the run it becomes a [`Profile`].
#[derive(Debug, Default)]
pub struct Symbolized {
    named: NamedStacks,
    oom_kills: Vec<OomKill>,
    losses: Losses,
    /// Notes about missing names.
    notes: Vec<String>,
}

impl Symbolized {
    pub(super) const fn new(named: NamedStacks, oom_kills: Vec<OomKill>, losses: Losses, notes: Vec<String>) -> Self {
        Self { named, oom_kills, losses, notes }
    }

    /// Returns the number of allocations of all processes.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.named.processes.iter().map(|process| process.total.alloc.count).sum()
    }

    /// Returns the complete profile.
    #[must_use]
    pub fn into_profile(self, run: RunFacts) -> Profile {
        let Self { named: NamedStacks { processes, stacks, frames, stalls }, oom_kills, losses, notes: advice } = self;
        let RunFacts {
            class,
            page_sample,
            duration,
            allocators,
            killed_cgroups,
            reclaim,
            cgroups,
            filtered,
            older,
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
            processes,
            stacks,
            frames,
            allocators,
            oom_kills,
            cgroup_paths: killed_cgroups,
            cgroups: stalls.into_iter().map(cgroup).collect(),
            reclaim,
            losses,
            filtered,
            older,
            untraced,
            notes: notes.into_iter().chain(advice).collect(),
            debug_files,
            cost,
        }
    }
}
