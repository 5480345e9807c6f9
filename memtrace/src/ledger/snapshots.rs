//! Snapshots of a ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Ledger;
use super::image::has_usage;
use super::process::Process;
use crate::model::{
    EndedImage, EventClass, ImageEnd, ImageId, ImageUsage, Owner, Snapshot, Stacks, Tick, TouchedProcesses,
};

impl Ledger {
    /// Adds hot and cold bytes to the snapshots of running processes.
    pub fn set_touches(&mut self, touches: Arc<TouchedProcesses>) {
        self.touches = Some(touches);
    }

    /// Snapshot of `class` at `now`, without images that have no usage.
    #[must_use]
    pub fn snapshot(&self, class: EventClass, now: Tick) -> Snapshot {
        let ended = self.ended.iter().filter_map(|image| Some((image.id, usage_of(image, class)?.clone())));
        Snapshot {
            images: self.running(class, now).chain(ended).collect(),
            stacks: self.stacks(),
            ends: self.ends(),
            owners: self.owners(),
            oom_kills: self.oom_kills.clone(),
            losses: self.budget.losses.clone(),
        }
    }

    /// Last snapshot, which reuses the memory of the ledger.
    #[must_use]
    pub fn finish(mut self, class: EventClass, now: Tick) -> Snapshot {
        let (ends, owners) = (self.ends(), self.owners());
        let mut images: BTreeMap<_, _> = self.running(class, now).collect();
        let mut stacks = Stacks::default();
        for process in self.processes.iter_mut() {
            stacks.merge(std::mem::take(&mut process.stacks));
        }
        for EndedImage { id, usage, stacks: ended, .. } in std::mem::take(&mut self.ended) {
            stacks.merge(ended);
            images.extend(usage.into_iter().find(|(of, _)| *of == class).map(|(_, usage)| (id, usage)));
        }
        let oom_kills = std::mem::take(&mut self.oom_kills);
        Snapshot { images, stacks, ends, owners, oom_kills, losses: self.budget.losses }
    }

    /// Stacks of all images. Other shards may have the events of some of them.
    fn stacks(&self) -> Stacks {
        let mut all = Stacks::default();
        let running = self.processes.iter().map(|process| &process.stacks);
        for stacks in running.chain(self.ended.iter().map(|image| &image.stacks)) {
            all.merge(stacks.clone());
        }
        all
    }

    /// Ends of the reported images.
    fn ends(&self) -> BTreeMap<ImageId, (ImageEnd, Tick)> {
        self.reported().map(|image| (image.id, (image.end, image.at))).collect()
    }

    /// Owners of the images in [`Self::ends`].
    fn owners(&self) -> BTreeMap<ImageId, Owner> {
        self.reported().filter_map(|image| Some((image.id, image.owner?))).collect()
    }

    /// Images that have ended, were not taken and are reported.
    fn reported(&self) -> impl Iterator<Item = &EndedImage> {
        self.ended.iter().filter(|image| image.is_reported())
    }

    /// Usage of `class` by running images.
    fn running(&self, class: EventClass, now: Tick) -> impl Iterator<Item = (ImageId, ImageUsage)> + '_ {
        let touches = self.touches.as_deref();
        let usage = move |process: &Process| {
            let image = process.image.as_ref();
            match class {
                EventClass::Heap => {
                    let (heap, mut usage) = (&image?.heap, image?.heap.usage(None, now, &self.settings));
                    if let Some(pages) = touches.and_then(|touches| touches.0.get(&process.id.pid)) {
                        heap.add_touches(&mut usage, pages);
                    }
                    Some(usage)
                }
                EventClass::Map => Some(image?.mappings.as_ref()?.usage(None)),
                EventClass::Fault => process.page_usage(),
                EventClass::Reclaim => Some(image?.stalls.as_ref()?.usage(None)),
            }
        };
        self.processes.iter().filter_map(move |process| {
            let usage = usage(process)?;
            has_usage(&usage).then_some((process.id, usage))
        })
    }
}

/// Usage of `class` by an image that has ended.
fn usage_of(image: &EndedImage, class: EventClass) -> Option<&ImageUsage> {
    image.usage.iter().find(|(of, _)| *of == class).map(|(_, usage)| usage)
}
