//! Removal of probes, in the background.

use std::collections::HashSet;
use std::path::PathBuf;

use memtrace_model::Pid;

use super::waiting::ProbeSet;
use super::{Attachment, Link, Probes};
use crate::kernel::attach_point::{AttachPoint, Scope};
use crate::kernel::detach::Detach;
use crate::kernel::sampled;

impl Link {
    /// Returns true if `set` has all probes of the link.
    fn is_part_of(&self, set: &ProbeSet) -> bool {
        let is_in_set = |&point: &AttachPoint| set.points.contains(&(self.program, point));
        self.scope == set.scope && self.object == set.object && self.points.iter().all(is_in_set)
    }
}

impl Probes {
    /// Starts to remove the probes of the objects at `paths` in the background. No process maps these objects any more.
    pub fn remove_objects(&mut self, paths: &HashSet<PathBuf>) {
        if paths.is_empty() {
            return;
        }
        self.attached.retain(|attachment| !paths.contains(&attachment.object));
        self.refused.retain(|path, _| !paths.contains(path));
        self.refused_instructions.retain(|(path, _)| !paths.contains(path));
        self.waiting.remove(|set| paths.contains(&set.object));
        let removed: Vec<_> = self.links.extract_if(.., |link| paths.contains(&link.object)).collect();
        self.remove_links(removed);
    }

    /// Starts to remove, in the background, the probes that report samples of the process `pid` only.
    pub fn remove_sampled(&mut self, pid: Pid) {
        let is_removed = |scope, program| scope == Scope::Process(pid) && sampled::PROGRAMS.contains(&program);
        self.attached.retain(|attachment| !is_removed(attachment.scope, attachment.program));
        self.waiting.remove(|set| set.points.iter().any(|&(program, _)| is_removed(set.scope, program)));
        let removed: Vec<_> = self.links.extract_if(.., |link| is_removed(link.scope, link.program)).collect();
        self.remove_links(removed);
    }

    /// Starts to remove the probes of `set` in the background, even those that an earlier call has attached.
    pub(super) fn remove_set(&mut self, set: &ProbeSet) {
        let removed: Vec<_> = self.links.extract_if(.., |link| link.is_part_of(set)).collect();
        for Link { scope, object, program, points, .. } in &removed {
            for &point in points {
                self.attached.remove(&Attachment { scope: *scope, object: object.clone(), program, point });
            }
        }
        self.remove_links(removed);
    }

    /// Starts to remove `removed` in the background.
    fn remove_links(&mut self, removed: Vec<Link>) {
        let removed: Vec<_> = removed.into_iter().map(|link| link.probes).collect();
        if removed.is_empty() {
            return;
        }
        match &mut self.removal {
            Some(removal) => removal.add(removed),
            None => self.removal = Some(Detach::start(removed, || {})),
        }
    }

    /// Waits until all removals that have begun are complete.
    pub fn complete_removals(&mut self) {
        drop(self.removal.take());
    }

    /// Starts to remove the probes in the background. Calls `on_progress` after the removal of each link. The result also counts
    /// the probes of a removal in progress.
    #[must_use]
    pub fn detach(mut self, on_progress: impl Fn() + Send + 'static) -> Detach {
        self.start_detach(on_progress)
    }

    fn start_detach(&mut self, on_progress: impl Fn() + Send + 'static) -> Detach {
        let links = std::mem::take(&mut self.links).into_iter().map(|link| link.probes).collect();
        match self.removal.take() {
            Some(mut removal) => {
                removal.set_on_progress(on_progress);
                removal.add(links);
                removal
            }
            None => Detach::start(links, on_progress),
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        drop(self.start_detach(|| {}));
    }
}
