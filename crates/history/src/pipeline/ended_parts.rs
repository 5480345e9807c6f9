//! Assembly of ended images: each shard sends its part of an image, and the parts are merged. Pure.

use std::collections::BTreeMap;

use memtrace_model::{EndedImage, ImageEnd, ImageId, Tick};

/// Ended images that wait for the parts of all shards.
#[derive(Debug)]
pub struct EndedParts {
    shards: usize,
    open: BTreeMap<ImageId, OpenImage>,
    /// Sum of [`EndedImage::stack_count`] over the images.
    stacks: usize,
}

/// An ended image, and the number of its parts that have arrived.
#[derive(Debug)]
struct OpenImage {
    image: EndedImage,
    parts: usize,
}

impl EndedParts {
    /// Creates an empty collection. `shards`: number of shards, and so of parts of each image.
    #[must_use]
    pub const fn new(shards: usize) -> Self {
        Self { shards, open: BTreeMap::new(), stacks: 0 }
    }

    /// Adds the parts that a shard has sent. Each shard sends exactly one part of each image.
    pub fn add(&mut self, parts: Vec<EndedImage>) {
        for part in parts {
            match self.open.get_mut(&part.id) {
                Some(open) => {
                    self.stacks -= open.image.stack_count();
                    open.image.merge(part);
                    self.stacks += open.image.stack_count();
                    open.parts += 1;
                }
                None => {
                    self.stacks += part.stack_count();
                    self.open.insert(part.id, OpenImage { image: part, parts: 1 });
                }
            }
        }
    }

    /// Removes and returns the complete images that `is_ready` accepts, ordered by id.
    pub fn take_complete(&mut self, mut is_ready: impl FnMut(&EndedImage) -> bool) -> Vec<EndedImage> {
        let shards = self.shards;
        let complete = self.open.extract_if(.., |_, open| open.parts >= shards && is_ready(&open.image));
        let complete: Vec<_> = complete.map(|(_, open)| open.image).collect();
        self.stacks -= complete.iter().map(EndedImage::stack_count).sum::<usize>();
        complete
    }

    /// Returns the number of totals and stacks of the images, which take most of their memory.
    #[must_use]
    pub const fn stack_count(&self) -> usize {
        self.stacks
    }

    /// Returns true if all parts of the image have arrived, and the image was not taken yet.
    #[must_use]
    pub fn is_complete(&self, id: ImageId) -> bool {
        self.open.get(&id).is_some_and(|open| open.parts >= self.shards)
    }

    /// Returns true if a part of the image has arrived, and the image was not taken yet.
    #[must_use]
    pub fn has_part(&self, id: ImageId) -> bool {
        self.open.contains_key(&id)
    }

    /// Returns the images that ended before `before` and have missing parts.
    pub fn incomplete(&self, before: Tick) -> impl Iterator<Item = (ImageId, ImageEnd, Tick)> + '_ {
        let incomplete = self.open.values().filter(move |open| open.parts < self.shards && open.image.at < before);
        incomplete.map(|open| (open.image.id, open.image.end, open.image.at))
    }

    /// Removes and returns the remaining images, with the parts that have arrived.
    #[must_use]
    pub fn finish(&mut self) -> Vec<EndedImage> {
        self.stacks = 0;
        std::mem::take(&mut self.open).into_values().map(|open| open.image).collect()
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{
        Amount, Bytes, EventClass, ImageUsage, Pid, Quantities, Quantity, StackId, Stacks, UnsentStacks,
    };

    use super::*;

    fn part(pid: u32, at: u32, end: ImageEnd, bytes: u64) -> EndedImage {
        let amount = Amount::one(Bytes(bytes));
        let total = Quantities::ZERO.with_amount(Quantity::ExitBytes, amount).with_amount(Quantity::AllocBytes, amount);
        let usage = ImageUsage { ended: Some(end), total, ..ImageUsage::default() };
        EndedImage {
            id: ImageId { pid: Pid(pid), ordinal: 0 },
            end,
            at: Tick(at),
            owner: None,
            usage: vec![(EventClass::Heap, usage)],
            stacks: Stacks::default(),
            unsent: UnsentStacks::None,
        }
    }

    fn without_usage(pid: u32, at: u32) -> EndedImage {
        EndedImage { usage: Vec::new(), ..part(pid, at, ImageEnd::Exit, 0) }
    }

    fn bytes(image: &EndedImage) -> Vec<u64> {
        image.usage.iter().map(|(_, usage)| usage.total.alloc().bytes.0).collect()
    }

    #[test]
    fn image_is_complete_with_the_parts_of_all_shards() {
        let mut parts = EndedParts::new(3);
        parts.add(vec![part(1, 10, ImageEnd::Exit, 1), part(2, 11, ImageEnd::Exit, 100)]);
        parts.add(vec![part(2, 12, ImageEnd::Exit, 200), without_usage(1, 9)]);
        assert_eq!(parts.take_complete(|_| true), []);
        parts.add(vec![part(1, 11, ImageEnd::OomKill, 4)]);
        let ids = [1, 2, 3].map(|pid| part(pid, 0, ImageEnd::Exit, 0).id);
        assert_eq!(
            ids.map(|id| (parts.has_part(id), parts.is_complete(id))),
            [(true, true), (true, false), (false, false)]
        );
        assert_eq!(parts.take_complete(|_| false), [], "not ready");
        let complete = parts.take_complete(|_| true);
        assert_eq!(complete.iter().map(bytes).collect::<Vec<_>>(), [[5]]);
        assert_eq!((complete[0].end, complete[0].at), (ImageEnd::OomKill, Tick(9)), "as in a merged snapshot");
        assert_eq!(parts.take_complete(|_| true), []);
        assert_eq!(parts.finish().iter().map(bytes).collect::<Vec<_>>(), [[300]]);
    }

    /// Returns a part with totals of these stacks.
    fn with_stacks(pid: u32, stacks: &[u64]) -> EndedImage {
        let mut part = part(pid, 0, ImageEnd::Exit, 1);
        let by_stack = stacks.iter().map(|&stack| (StackId(stack).into(), Quantities::ZERO));
        part.usage[0].1.by_stack = by_stack.collect();
        part
    }

    #[test]
    fn stacks_of_waiting_images_are_counted() {
        let mut parts = EndedParts::new(2);
        parts.add(vec![with_stacks(1, &[10, 11]), with_stacks(2, &[10])]);
        assert_eq!(parts.stack_count(), 3);
        parts.add(vec![with_stacks(1, &[11, 12, 13])]);
        assert_eq!(parts.stack_count(), 5, "both shards have stack 11");
        assert_eq!(parts.take_complete(|_| true).len(), 1);
        assert_eq!(parts.stack_count(), 1);
        assert_eq!((parts.finish().len(), parts.stack_count()), (1, 0));
    }

    #[test]
    fn missing_parts_are_known() {
        let mut parts = EndedParts::new(2);
        parts.add(vec![part(1, 10, ImageEnd::Exit, 1), part(2, 20, ImageEnd::Exec, 1), part(3, 5, ImageEnd::Exit, 1)]);
        parts.add(vec![without_usage(3, 5)]);
        let incomplete = |before| parts.incomplete(Tick(before)).map(|(id, ..)| id.pid.0).collect::<Vec<_>>();
        assert_eq!(incomplete(10), [0_u32; 0]);
        assert_eq!(incomplete(11), [1]);
        assert_eq!(incomplete(30), [1, 2]);
    }
}
