//! Mappings of the traced processes during a run.

use super::Trace;
use crate::allocators::Allocator;
use crate::model::Pid;
use crate::session::observer::Observer;
use crate::session::run::selection::Selection;
use crate::session::select::LateProbes;
use crate::session::track::{Changes, generated_code};

impl Trace {
    /// Probes newly mapped allocators, and publishes the unwind tables of newly mapped objects.
    pub(super) fn update_mappings(&mut self, observer: &mut dyn Observer) {
        self.tables.serve(&mut self.kernel, &mut self.tracker);
        let copies = self.tables.stack_copies();
        let Changes { allocators, remapped } = self.tracker.poll();
        for (pid, allocator) in allocators {
            self.probe(pid, &allocator, observer);
        }
        generated_code::add_of(&mut self.tracker, &remapped);
        self.tables.update(&mut self.kernel, &self.tracker, remapped);
        self.tables.finish_walks(&mut self.kernel, &self.tracker, copies);
        self.evict_objects(false);
    }

    /// Probes an allocator that `pid` has newly mapped.
    fn probe(&mut self, pid: Pid, allocator: &Allocator, observer: &mut dyn Observer) {
        let is_selected = Selection::of(&self.filter).contains(&self.tracker, self.tracker.latest_id(pid));
        let Self { targets, tracker, kernel, probes, .. } = self;
        let Some(late) = LateProbes::place(pid, allocator, targets, tracker, kernel, probes) else { return };
        self.complete &= late.are_placed || !is_selected;
        if is_selected && self.targets.add_late_note(&late.note) {
            observer.note(&late.note);
        }
    }
}
