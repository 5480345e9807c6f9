//! Images that are examined again later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use memtrace_model::ImageId;

/// Images with the times of their next examination. Each image has one time.
#[derive(Debug, Default)]
pub(super) struct Rechecks {
    times: BTreeMap<ImageId, Instant>,
    queue: BTreeSet<(Instant, ImageId)>,
}

impl Rechecks {
    /// Adds an image, or changes its time.
    pub(super) fn set(&mut self, id: ImageId, at: Instant) {
        self.remove(id);
        self.times.insert(id, at);
        self.queue.insert((at, id));
    }

    pub(super) fn remove(&mut self, id: ImageId) {
        if let Some(at) = self.times.remove(&id) {
            self.queue.remove(&(at, id));
        }
    }

    /// Removes and returns the images that are due at `now`, at most `most`.
    pub(super) fn take_due(&mut self, now: Instant, most: usize) -> Vec<ImageId> {
        let due = self.queue.iter().take(most).take_while(|(at, _)| *at <= now);
        let due: Vec<_> = due.map(|(_, id)| *id).collect();
        due.iter().for_each(|&id| self.remove(id));
        due
    }

    /// Removes and returns all images.
    pub(super) fn take_all(&mut self) -> Vec<ImageId> {
        self.queue.clear();
        std::mem::take(&mut self.times).into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::Pid;

    use super::*;

    #[test]
    fn each_image_is_due_once() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let id = |pid| ImageId { pid: Pid(pid), ordinal: 0 };
        let mut rechecks = Rechecks::default();
        for _ in 0..3 {
            rechecks.set(id(1), start + 3 * second);
            rechecks.set(id(2), start + second);
            rechecks.set(id(3), start + 2 * second);
        }
        rechecks.set(id(4), start + second);
        rechecks.remove(id(4));
        assert_eq!(rechecks.take_due(start, 10), []);
        assert_eq!(rechecks.take_due(start + 9 * second, 2), [id(2), id(3)]);
        rechecks.set(id(1), start + 9 * second);
        assert_eq!(rechecks.take_due(start + 4 * second, 2), []);
        assert_eq!(rechecks.take_all(), [id(1)]);
        assert_eq!((rechecks.take_due(start + 9 * second, 2), rechecks.take_all()), (vec![], vec![]));
    }
}
