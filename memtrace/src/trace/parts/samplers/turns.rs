//! Turns of images whose variables are read. Each needs an open file, so their number is limited.

use std::collections::{BTreeSet, VecDeque};

use memtrace_model::ImageId;

/// Maximum number of images whose variables are read. Others wait for their turn.
pub(super) const MAX_WATCHED: usize = 256;

/// Maximum number of turns that end with each change. A turn takes at least four changes, about four seconds: an allocator reads
/// its options after the start of the process.
const MAX_CHANGED: usize = 64;

/// Images whose variables are read, and images that wait for their turn. In each list, the image that has been there
/// the longest comes first.
#[derive(Debug, Default)]
pub(super) struct Turns {
    current: VecDeque<ImageId>,
    waiting: VecDeque<ImageId>,
    /// Images with a place since the last change. Other images cannot take these places, so no image waits forever if
    /// new images start all the time.
    due: BTreeSet<ImageId>,
}

/// Images whose turns change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChangedTurns {
    /// Images whose turn has ended. They wait for the next one.
    pub(super) ended: Vec<ImageId>,
    /// Images that [`Turns::begin`] can be called for again. They do not wait any more.
    pub(super) due: Vec<ImageId>,
}

impl Turns {
    /// Begins the turn of an image. Returns false if there is no room: then the image waits.
    pub(super) fn begin(&mut self, id: ImageId) -> bool {
        if self.current.contains(&id) {
            return true;
        }
        self.due.remove(&id);
        let has_room = self.current.len() + self.due.len() < MAX_WATCHED;
        if has_room {
            self.waiting.retain(|waiting| *waiting != id);
            self.current.push_back(id);
        } else if !self.waiting.contains(&id) {
            self.waiting.push_back(id);
        }
        has_room
    }

    /// Forgets an image that has left, or whose variables do not matter any more.
    pub(super) fn forget(&mut self, id: ImageId) {
        self.current.retain(|current| *current != id);
        self.waiting.retain(|waiting| *waiting != id);
        self.due.remove(&id);
    }

    /// Ends the longest turns if other images wait.
    pub(super) fn change(&mut self) -> ChangedTurns {
        let changed = self.waiting.len().min(MAX_CHANGED);
        let room = MAX_WATCHED.saturating_sub(self.current.len());
        let ended: Vec<_> = self.current.drain(..changed.saturating_sub(room)).collect();
        let due: Vec<_> = self.waiting.drain(..changed).collect();
        self.waiting.extend(ended.iter().copied());
        self.due = due.iter().copied().collect();
        ChangedTurns { ended, due }
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::Pid;

    use super::*;

    fn id(pid: usize) -> ImageId {
        ImageId { pid: Pid(u32::try_from(pid).unwrap()), ordinal: 0 }
    }

    #[test]
    fn image_that_leaves_makes_room() {
        let mut turns = Turns::default();
        assert!((0..MAX_WATCHED).all(|pid| turns.begin(id(pid))));
        assert!(turns.begin(id(0)), "its turn has begun already");
        assert!(!turns.begin(id(1000)) && !turns.begin(id(1000)));
        turns.forget(id(7));
        assert_eq!(turns.change(), ChangedTurns { ended: vec![], due: vec![id(1000)] });
        assert!(turns.begin(id(1000)) && !turns.begin(id(1001)));
        turns.forget(id(1001));
        assert_eq!(turns.change(), ChangedTurns::default());
    }

    #[test]
    fn new_images_take_no_place_of_a_waiting_one() {
        let mut turns = Turns::default();
        assert!((0..MAX_WATCHED).all(|pid| turns.begin(id(pid))));
        assert!(!turns.begin(id(1000)));
        assert_eq!(turns.change(), ChangedTurns { ended: vec![id(0)], due: vec![id(1000)] });
        assert!(!turns.begin(id(2000)), "the place is that of the image that has waited");
        assert!(turns.begin(id(1000)));
        // An image that does not begin its turn loses its place with the next change.
        assert_eq!(turns.change(), ChangedTurns { ended: [1, 2].map(id).to_vec(), due: [0, 2000].map(id).to_vec() });
        assert!(turns.begin(id(2000)) && !turns.begin(id(3000)));
        assert_eq!(turns.change().due, [1, 2, 3000].map(id));
        assert!(turns.begin(id(3000)) && !turns.begin(id(0)));
    }

    #[test]
    fn each_image_has_its_turn() {
        let count = MAX_WATCHED + 100;
        let mut turns = Turns::default();
        let mut begun: Vec<usize> = (0..count).map(|pid| usize::from(turns.begin(id(pid)))).collect();
        // The first change takes 64 images, the second one the other 36 and 28 of the first 64 that had ended.
        for (ended, due) in [(0..64, 256..320), (64..128, 320..384)] {
            let changed = turns.change();
            assert_eq!(changed.ended, ended.map(id).collect::<Vec<_>>());
            assert_eq!(changed.due, due.map(|pid| id(if pid < count { pid } else { pid - count })).collect::<Vec<_>>());
            for due in changed.due {
                assert!(turns.begin(due));
                begun[due.pid.0 as usize] += 1;
            }
        }
        assert!(begun.iter().all(|&turns| turns > 0), "{begun:?}");
        assert!(turns.current.len() == MAX_WATCHED && turns.waiting.len() == 100);
    }
}
