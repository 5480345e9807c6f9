//! Mappings of the traced processes during a run.

use super::Trace;
use crate::allocators::Allocator;
use crate::model::{Pid, printable};
use crate::session::observer::Observer;
use crate::session::run::selection::Selection;
use crate::session::select::AllocatorProbes;
use crate::session::track::Changes;

impl Trace {
    /// Probes newly mapped allocators, and publishes the unwind tables of newly mapped objects.
    pub(super) fn update_mappings(&mut self, observer: &mut dyn Observer) {
        self.tables.serve(&mut self.kernel, &mut self.tracker);
        let copies = self.tables.stack_copies();
        let Changes { allocators, remapped } = self.tracker.poll();
        for (pid, allocator) in allocators {
            self.probe(pid, &allocator, observer);
        }
        self.tracker.add_code_generators(&remapped);
        self.tables.update(&mut self.kernel, &self.tracker, remapped);
        self.tables.finish_walks(&mut self.kernel, &self.tracker, copies);
        self.evict_objects(false);
    }

    /// Probes an allocator that `pid` has newly mapped.
    fn probe(&mut self, pid: Pid, allocator: &Allocator, observer: &mut dyn Observer) {
        let Some(probe_site) = self.targets.probe_site else { return };
        let is_selected = Selection::of(&self.filter).contains(&self.tracker, self.tracker.latest_id(pid));
        let scope = self.targets.scope(pid);
        let id = self.tracker.allocators.id(allocator);
        let Some(new) = AllocatorProbes::new(pid, scope, allocator, id, probe_site) else { return };
        let path = printable(&allocator.object.path);
        let placed = new.place(&mut self.kernel, &mut self.probes);
        self.complete &= placed.is_ok() || !is_selected;
        if placed.is_err() {
            self.tracker.allocators.set_unattached(allocator);
        }
        self.tracker.allocators.set_probed(allocator);
        let result = placed.map_or_else(|error| error.to_string(), |()| String::from("probed from now on"));
        let note = format!("process {pid} has mapped another allocator, {path}: {result}");
        if is_selected && self.targets.add_late_note(&note) {
            observer.note(&note);
        }
    }
}
