//! Channel for the images that have ended in the shards.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

use memtrace_model::EndedImage;

/// Images that have ended in a shard, with the index of the shard.
type Batch = (usize, Vec<EndedImage>);

/// Takes the images that have ended in a shard.
#[derive(Clone, Debug)]
pub struct EndedSink {
    sender: SyncSender<Batch>,
    held: Held,
    /// The channel is full while it holds at least this number of totals and stacks.
    max_stacks: usize,
    /// Number of totals and stacks up to which a batch passes although the channel has too many.
    small: usize,
}

/// Receives the images of an [`EndedSink`].
#[derive(Debug)]
pub struct EndedReceiver {
    receiver: Receiver<Batch>,
    held: Held,
}

/// Number of totals and stacks in a channel ([`EndedImage::stack_count`]).
#[derive(Clone, Debug, Default)]
struct Held(Arc<AtomicUsize>);

/// Returns a channel that is full while it holds `batches` batches of images, or at least `max_stacks` totals and stacks. The
/// second limit bounds its memory: the receiver can be without a processor for half a minute, while a hundred compilers end.
#[must_use]
pub fn ended_channel(batches: usize, max_stacks: usize) -> (EndedSink, EndedReceiver) {
    let (sender, receiver) = mpsc::sync_channel(batches);
    let held = Held::default();
    let small = max_stacks / batches.max(1);
    (EndedSink { sender, held: held.clone(), max_stacks: max_stacks.max(1), small }, EndedReceiver { receiver, held })
}

impl EndedSink {
    /// Sends `images` unless the channel is full. Leaves those that it has not sent.
    pub(super) fn try_send(&self, shard: usize, images: &mut Vec<EndedImage>) {
        let count = stack_count(images);
        // The shards do not wait for each other, so each of them can exceed the limit by one batch. The images of a busy shard
        // wait for parts of all other shards, which have few or no stacks: if the busy shard kept the channel full, these images
        // would never be complete. So small batches pass. Together, they are at most as large as `max_stacks`.
        if count > self.small && self.held.0.load(Ordering::Relaxed) >= self.max_stacks {
            return;
        }
        // The receiver must not subtract the number before it is added.
        self.held.0.fetch_add(count, Ordering::Relaxed);
        match self.sender.try_send((shard, mem::take(images))) {
            Ok(()) => {}
            Err(TrySendError::Full((_, unsent)) | TrySendError::Disconnected((_, unsent))) => {
                self.held.0.fetch_sub(count, Ordering::Relaxed);
                *images = unsent;
            }
        }
    }
}

impl EndedReceiver {
    /// Receives the batches that have arrived.
    pub fn arrived(&self) -> impl Iterator<Item = Batch> + '_ {
        self.receiver.try_iter().inspect(|batch| self.release(batch))
    }

    /// Receives all batches, and waits for them.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Batch> + '_ {
        self.receiver.iter().inspect(|batch| self.release(batch))
    }

    fn release(&self, (_, images): &Batch) {
        self.held.0.fetch_sub(stack_count(images), Ordering::Relaxed);
    }
}

fn stack_count(images: &[EndedImage]) -> usize {
    images.iter().map(EndedImage::stack_count).sum()
}

#[cfg(test)]
mod tests {
    use memtrace_model::{
        EventClass, ImageEnd, ImageId, ImageUsage, Pid, Quantities, StackId, Stacks, Tick, UnsentStacks,
    };

    use super::*;

    /// Returns an image with totals of this number of stacks.
    fn image(pid: u32, stacks: u64) -> EndedImage {
        let by_stack = (0..stacks).map(|stack| (StackId(stack).into(), Quantities::ZERO)).collect();
        EndedImage {
            id: ImageId { pid: Pid(pid), ordinal: 0 },
            end: ImageEnd::Exit,
            at: Tick(1),
            owner: None,
            usage: vec![(EventClass::Heap, ImageUsage { by_stack, ..ImageUsage::default() })],
            stacks: Stacks::default(),
            unsent: UnsentStacks::None,
        }
    }

    fn pids(batches: impl Iterator<Item = Batch>) -> Vec<(usize, Vec<u32>)> {
        batches.map(|(shard, images)| (shard, images.iter().map(|image| image.id.pid.0).collect())).collect()
    }

    #[test]
    fn a_channel_with_too_many_stacks_is_full() {
        let (sink, receiver) = ended_channel(10, 100);
        let send = |shard, images: Vec<EndedImage>| {
            let mut images = images;
            sink.try_send(shard, &mut images);
            images.len()
        };
        assert_eq!(send(0, vec![image(1, 60), image(2, 39)]), 0);
        assert_eq!(send(1, vec![image(1, 1000)]), 0, "99 of 100");
        assert_eq!([send(0, vec![image(3, 0), image(4, 11)]), send(1, vec![image(5, 11)])], [2, 1]);
        assert_eq!(send(2, vec![image(3, 0), image(4, 10)]), 0, "the parts of other shards pass");
        assert_eq!(pids(receiver.arrived()), [(0, vec![1, 2]), (1, vec![1]), (2, vec![3, 4])]);
        assert_eq!(send(0, vec![image(3, 0), image(4, 11)]), 0);
        assert_eq!(pids(receiver.arrived()), [(0, vec![3, 4])]);
    }

    #[test]
    fn images_that_find_the_channel_full_do_not_count() {
        let (sink, receiver) = ended_channel(1, 100);
        sink.try_send(0, &mut vec![image(1, 1)]);
        let mut images = vec![image(2, 99)];
        (0..3).for_each(|_| sink.try_send(0, &mut images));
        assert_eq!(images.len(), 1, "the channel holds a batch");
        assert_eq!(pids(receiver.arrived()), [(0, vec![1])]);
        sink.try_send(0, &mut images);
        assert_eq!((images.len(), pids(receiver.arrived())), (0, vec![(0, vec![2])]));
    }
}
