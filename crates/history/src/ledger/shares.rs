//! Fair shares of the ledger. If it is nearly full, the user with the most live blocks is cut back to a fair share.
//! Each step drops the smallest blocks of the process that has the most blocks of this user.
//!
//! Without this, a process that fills the ledger would hide all others, because new blocks of any process would be
//! dropped. Shares belong to users, since a user can start any number of processes.

use std::collections::{BTreeMap, BinaryHeap};

use memtrace_model::{Amount, Bytes, EventClass, ImageId, Pid, Tick};

use super::block::SIZE_CLASSES;
use super::demotions::{Demoted, UserOf};
use super::images::Images;

/// Live blocks of the image of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProcessBlocks {
    count: u64,
    id: ImageId,
}

/// Live blocks of a user.
#[derive(Debug, Default)]
struct UserBlocks {
    count: u64,
    processes: BinaryHeap<ProcessBlocks>,
}

/// Live blocks of a process by class of size, without blocks that will be dropped.
struct Cut {
    classes: [u64; SIZE_CLASSES],
    /// Size of the smallest block that remains.
    min_size: Bytes,
}

/// Minimum size of a process with samples only: the BPF programs drop all of its exact blocks.
const ALL_EXACT: Bytes = Bytes(u64::MAX);

/// Maximum number of processes with a changed user in one comparison. A process that changes its user all the time must
/// not keep the shard busy.
const MAX_CHANGED: u32 = 16;

impl Cut {
    /// Drops the class with the smallest blocks. Returns the number of its blocks; `None` if no block remains.
    fn drop_smallest(&mut self) -> Option<u64> {
        let class = self.classes.iter().position(|&count| count > 0)?;
        self.min_size = Bytes(1 << class.min(SIZE_CLASSES - 2));
        Some(std::mem::take(&mut self.classes[class]))
    }
}

impl Images {
    /// Demotes processes of users with more than a fair share, until there is room. Returns these processes.
    pub(super) fn demote_largest(&mut self, now: Tick, user_of: UserOf) -> Vec<Demoted> {
        let (mut all, mut changed) = (Vec::new(), 0);
        let mut users = self.live_users(user_of);
        let mut shares = users.len() as u64;
        while self.budget.blocks >= self.demotions.nearly_full {
            let Some((&user, blocks)) = users.iter().max_by_key(|(_, blocks)| blocks.count) else { break };
            let excess = blocks.count.saturating_sub(self.demotions.room / shares);
            if excess == 0 {
                break;
            }
            // A process may have changed its user since the user was read.
            let largest = blocks.processes.peek().map(|process| process.id);
            if changed < MAX_CHANGED && largest.is_some_and(|id| self.read_user(id, user_of) != user) {
                changed += 1;
                users = self.live_users(user_of);
                shares = users.len() as u64;
                continue;
            }
            // Afterwards, the user has at most a share, or no block that can be dropped.
            let processes = users.remove(&user).unwrap_or_default().processes;
            all.extend(self.cut(processes, excess, now));
        }
        all
    }

    /// Drops live blocks of `processes` until at least `excess` blocks are dropped or no block remains. Each step
    /// drops the smallest blocks of the process with the most blocks. Returns the demoted processes.
    fn cut(&mut self, mut processes: BinaryHeap<ProcessBlocks>, mut excess: u64, at: Tick) -> Vec<Demoted> {
        let mut cuts: BTreeMap<ImageId, Cut> = BTreeMap::new();
        while excess > 0
            && let Some(process) = processes.pop()
        {
            let slot = self.processes.find_image(process.id);
            let image = slot.and_then(|slot| self.processes.slot(slot)).and_then(|process| process.image.as_ref());
            let classes = || image.map_or([0; SIZE_CLASSES], |image| image.heap.size_classes());
            let cut = cuts.entry(process.id).or_insert_with(|| Cut { classes: classes(), min_size: Bytes(0) });
            if let Some(dropped) = cut.drop_smallest() {
                excess = excess.saturating_sub(dropped);
                processes.push(ProcessBlocks { count: process.count.saturating_sub(dropped), ..process });
            }
        }
        cuts.retain(|_, cut| cut.min_size > Bytes(0));
        let mut all = Vec::new();
        for (image, Cut { min_size, .. }) in cuts {
            let demoted = Demoted { image, min_size, at };
            if self.demote(demoted) {
                all.push(demoted);
            }
        }
        all
    }

    /// Returns the users with live blocks.
    fn live_users(&mut self, user_of: UserOf) -> BTreeMap<Option<u32>, UserBlocks> {
        let mut users: BTreeMap<Option<u32>, UserBlocks> = BTreeMap::new();
        for process in self.processes.iter_mut() {
            let Some(count) = process.image.as_ref().map(|image| image.heap.blocks()).filter(|&count| count > 0) else {
                continue;
            };
            let id = process.id;
            // The pid of a kept image can belong to another process.
            let may_read = process.kept.is_none();
            process.user = process.user.or_else(|| may_read.then(|| user_of(id.pid)).flatten());
            let user = users.entry(process.user).or_default();
            user.count += count;
            user.processes.push(ProcessBlocks { count, id });
        }
        users
    }

    /// Reads the user of a process again.
    fn read_user(&mut self, id: ImageId, user_of: UserOf) -> Option<u32> {
        let process = self.processes.image_mut(id)?;
        if process.kept.is_none() {
            process.user = user_of(id.pid);
        }
        process.user
    }

    /// Demotes a process, which may have no events in this ledger yet. Returns false if the process already has this minimum
    /// size or a larger one, or if this ledger has seen its end. A kept image is demoted in this ledger only, because its pid
    /// can belong to another process.
    pub(super) fn demote(&mut self, demoted: Demoted) -> bool {
        if self.processes.keeps(demoted.image) {
            let slot = self.processes.find_image(demoted.image);
            self.demote_in(slot, demoted);
            return false;
        }
        let pid = demoted.image.pid;
        // A later image can belong to a new process with the same pid. The new process is not demoted.
        let is_known = self.demotions.of(pid).is_some();
        let has_ended = !is_known && self.processes.current(pid).ordinal > demoted.image.ordinal;
        if has_ended || !self.demotions.demote(demoted) {
            return false;
        }
        let slot = self.processes.find(pid);
        self.demote_in(slot, demoted);
        true
    }

    /// Demotes the image in a slot, if there is one.
    fn demote_in(&mut self, slot: Option<usize>, Demoted { min_size, at, .. }: Demoted) {
        if let Some(slot) = slot
            && let Some(image) = self.processes.slot_mut(slot).and_then(|process| process.image.as_mut())
        {
            self.deltas.set_changed(slot);
            image.heap.demote(min_size, at, &mut self.budget);
        }
    }

    /// Sets the sum of the blocks that the BPF programs have dropped since the demotion of a process. Ignores a process
    /// that has ended, unless other processes share its memory, and a process without exact blocks.
    pub(super) fn set_dropped(&mut self, demoted: Demoted, sum: Amount) {
        let pid = demoted.image.pid;
        // The samples of a patched process stand for its dropped blocks, so the dropped blocks do not count again.
        if demoted.min_size == ALL_EXACT {
            return;
        }
        // An image with a higher ordinal belongs to another process with this pid.
        if let Some((image, process)) = self.demotions.kept(pid)
            && demoted.image.ordinal <= image.ordinal
        {
            let (image, new) = (*image, process.count(sum));
            self.add_dropped_to_kept(Demoted { image, ..demoted }, new);
            return;
        }
        self.demote(demoted);
        let Some(process) = self.demotions.of(pid) else { return };
        let new = process.count(sum);
        if new != Amount::default()
            && let Some((image, budget)) = self.of(pid, EventClass::Heap)
        {
            image.heap.add_dropped(new, budget);
        }
    }

    /// Adds blocks that the BPF programs have dropped to an image that has ended while other processes share its memory.
    fn add_dropped_to_kept(&mut self, demoted: Demoted, new: Amount) {
        if new == Amount::default() {
            return;
        }
        let Some(slot) = self.processes.find_image(demoted.image) else { return };
        self.open_image_in(slot);
        self.demote_in(Some(slot), demoted);
        if let Some(image) = self.processes.slot_mut(slot).and_then(|process| process.image.as_mut()) {
            image.heap.add_dropped(new, &mut self.budget);
        }
    }

    /// Returns the image that a record with a sum of dropped blocks belongs to. This is the image that the process runs. If
    /// the process has exited while other processes share its memory, it is the last image of the process.
    pub(super) fn image_of_sum(&mut self, pid: Pid) -> ImageId {
        let kept = self.demotions.kept(pid).map(|(image, _)| *image);
        kept.filter(|_| self.processes.find(pid).is_none()).unwrap_or_else(|| self.processes.current(pid))
    }
}
