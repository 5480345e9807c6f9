//! Snapshots of a ledger.

use super::Ledger;
use super::image::has_usage;
use super::process::Process;
use crate::model::{EventClass, ImageId, ImageUsage, Snapshot, Tick};

impl Ledger {
    /// Snapshot of `class` at `now`, without images that have no usage.
    #[must_use]
    pub fn snapshot(&self, class: EventClass, now: Tick) -> Snapshot {
        let ended = self.ended.get(&class).into_iter().flatten();
        Snapshot {
            images: self.running(class, now).chain(ended.cloned()).collect(),
            // Other shards may have the events of some of these stacks.
            stacks: self.stacks.clone(),
            ends: self.ends.clone(),
            oom_kills: self.oom_kills.clone(),
            losses: self.budget.losses.clone(),
        }
    }

    /// Last snapshot, which reuses the memory of the ledger.
    #[must_use]
    pub fn finish(mut self, class: EventClass, now: Tick) -> Snapshot {
        let ended = self.ended.remove(&class).unwrap_or_default();
        Snapshot {
            images: self.running(class, now).chain(ended).collect(),
            stacks: std::mem::take(&mut self.stacks),
            ends: std::mem::take(&mut self.ends),
            oom_kills: std::mem::take(&mut self.oom_kills),
            losses: self.budget.losses,
        }
    }

    /// Usage of `class` by running images.
    fn running(&self, class: EventClass, now: Tick) -> impl Iterator<Item = (ImageId, ImageUsage)> + '_ {
        let usage = move |process: &Process| {
            let image = process.image.as_ref();
            match class {
                EventClass::Heap => Some(image?.usage(None, now, &self.settings)),
                EventClass::Map => Some(image?.mappings.as_ref()?.usage(None)),
                EventClass::Fault => process.page_usage(),
                EventClass::Reclaim => Some(image?.stalls.as_ref()?.usage(None)),
            }
        };
        self.processes.iter().filter_map(move |process| {
            let usage = usage(process)?;
            has_usage(&usage).then_some((process.image_id(), usage))
        })
    }
}
