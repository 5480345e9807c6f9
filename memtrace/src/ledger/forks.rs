//! Forks: a child starts with the pages and mappings of its parent.

use super::Ledger;
use crate::model::{EventClass, Pid};

impl Ledger {
    /// Gives the new process `child` the pages and mappings of `parent`.
    pub(super) fn fork(&mut self, parent: Pid, child: Pid) {
        // The exit of an earlier process with this pid was lost.
        if let Some(process) = self.processes.get_mut(child)
            && let Some(image) = &mut process.image
        {
            if let Some(next) = &mut self.next_delta {
                for class in [EventClass::Fault, EventClass::Map] {
                    next.replace_totals(process.id, class, image, None);
                }
            }
            let before = image.limited_stacks();
            let (pages, mappings) = (image.pages.take(), image.mappings.take());
            self.budget.totals.release(before - image.limited_stacks());
            self.budget.pages -= pages.map_or(0, |pages| pages.count());
            self.budget.mapped_ranges -= mappings.map_or(0, |mappings| mappings.count());
        }
        let image = self.processes.get(parent).and_then(|process| process.image.as_ref());
        let (pages, mappings) = image.map_or((&None, &None), |image| (&image.pages, &image.mappings));
        let pages = pages.as_ref().and_then(|pages| pages.fork(&mut self.budget));
        let mappings = mappings.as_ref().and_then(|mappings| mappings.fork(&mut self.budget));
        if (pages.is_some() || mappings.is_some())
            && let Some(image) = self.processes.get_mut(parent).and_then(|process| process.image.as_mut())
        {
            image.has_forked = true;
        }
        if let Some((image, _)) = self.image_of(child) {
            image.pages = pages;
            image.mappings = mappings;
            image.copy_of = Some(parent);
        }
    }
}
