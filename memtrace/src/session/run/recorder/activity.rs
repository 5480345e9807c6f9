//! Activity of threads in a recording.

use super::Recorder;
use crate::session::run::activity_changes::RecordedChanges;
use crate::session::run::stack_copies::FindCopy;
use crate::session::track::ProcessTracker;

impl Recorder {
    /// Adds activity of threads. The mmap events up to now are applied.
    pub(in crate::session::run) fn add_activity(
        &mut self,
        new: RecordedChanges,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
    ) {
        let RecordedChanges { mut changes, frames, calls } = new;
        for (id, stacks) in frames {
            let generated = tracker.generated_code_of(id);
            if let Some(image) = tracker.images().get(&id) {
                self.stacks.add_unknown(id, image, &stacks, generated.as_ref());
            }
        }
        self.activity.without_frames.append(&mut changes.stacks);
        let without = std::mem::take(&mut self.activity.without_frames);
        let unknown = without.iter().filter(|(.., id)| self.stacks.find(*id).is_none());
        let copies = unknown.map(|&(_, pid, id)| (tracker.latest_id(pid), id)).collect();
        self.add_copies(copies, tracker, find_copy);
        for (number, pid, id) in without {
            match self.stacks.find(id) {
                Some((path, end)) => self.activity.stacks.push((number, path, end)),
                None => self.activity.without_frames.push((number, pid, id)),
            }
        }
        self.activity.changes.append(changes);
        for (name, sums) in calls {
            *self.activity.calls.entry(name).or_default() += &sums;
        }
    }
}
