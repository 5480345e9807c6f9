//! Frames of stacks, which belong to the image that their process runs.

use super::Ledger;
use super::process::Process;
use crate::model::{LossReason, Pid, Stack, StackEnd, StackId, Stacks};

impl Ledger {
    pub(super) fn add_stack(&mut self, pid: Pid, id: StackId, stack: &Stack) {
        if !id.has_frames() {
            self.budget.losses.add(LossReason::BadRecord, 1);
            return;
        }
        let Some(process) = self.process_of(pid) else { return };
        if process.stacks.has_frames_of(id) || self.has_room_for_frames() {
            self.insert_stack(pid, id, stack);
        } else {
            self.budget.losses.add(LossReason::StacksFull, 1);
        }
    }

    /// Gives the stacks of an image that ends to running processes that inherited pages or mappings of them.
    pub(super) fn leave_stacks(&mut self, stacks: &Stacks) {
        let wanted_by = |process: &Process| {
            let inherited = process.image.iter().flat_map(|image| image.inherited_stacks());
            let wanted = inherited.filter(|&id| stacks.contains(id) && !process.stacks.contains(id));
            wanted.map(|id| (process.id.pid, id)).collect::<Vec<_>>()
        };
        let wanted: Vec<_> = self.processes.iter().flat_map(wanted_by).collect();
        for (pid, id) in wanted {
            match stacks.get(id) {
                Some(stack) if stacks.has_frames_of(id) => self.add_stack(pid, id, &stack),
                Some(merged) => self.insert_stack(pid, id, &merged),
                None => {}
            }
        }
    }

    /// Inserts a stack that was counted, if it has frames.
    fn insert_stack(&mut self, pid: Pid, id: StackId, stack: &Stack) {
        let defers = self.next_delta.as_ref().is_some_and(|next| next.deferral.is_some());
        if let Some(process) = self.processes.get_mut(pid) {
            // An image that starts with this stack is new.
            let is_deferred = process.image.as_ref().map_or(defers, |image| image.defers_stacks());
            let (nodes, before) = (process.stacks.calls().len(), process.stacks.find(id));
            process.stacks.insert(id, stack);
            self.budget.nodes += (process.stacks.calls().len() - nodes) as u64;
            if !is_deferred && process.stacks.find(id) != before && stack.end != StackEnd::Merged {
                let image = process.id;
                self.add_new_stack(image, id, stack);
            }
        }
    }

    /// Returns true if one more stack is within the limit, and counts it.
    fn has_room_for_frames(&mut self) -> bool {
        if self.budget.request_frames() {
            return true;
        }
        if !self.budget.frames.is_merge_due() {
            return false;
        }
        self.merge_frames();
        self.budget.request_frames()
    }
}
