//! Processes of a ledger by pid.

use memtrace_model::{ImageId, Pid};
use rustc_hash::FxHashMap;

use super::process::Process;
use crate::ordinals::Ordinals;

/// Processes that have a state. After the exit of a process, only the ordinal of its pid is kept, unless other
/// processes share its memory.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// States of processes. A vacant slot has a process without an image.
    slots: Vec<Process>,
    vacant: Vec<usize>,
    by_pid: FxHashMap<Pid, usize>,
    /// Slots of images that have ended while other processes share their memory.
    kept: FxHashMap<ImageId, usize>,
    ordinals: Ordinals,
}

impl Processes {
    /// Returns the process of a slot. The slot may be vacant.
    #[inline]
    pub(super) fn slot(&self, slot: usize) -> Option<&Process> {
        self.slots.get(slot)
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, slot: usize) -> Option<&mut Process> {
        self.slots.get_mut(slot)
    }

    pub(super) fn find(&self, pid: Pid) -> Option<usize> {
        self.by_pid.get(&pid).copied()
    }

    /// Returns the slot with the memory of the process in `slot`: this slot, or the slot whose memory it shares.
    pub(super) fn memory_of(&self, slot: usize) -> usize {
        self.slot(slot).and_then(|process| process.memory).unwrap_or(slot)
    }

    /// Returns the slot with the memory of `pid`.
    pub(super) fn find_memory(&self, pid: Pid) -> Option<usize> {
        self.find(pid).map(|slot| self.memory_of(slot))
    }

    /// Returns the slot of an image that runs, or that is kept for other processes.
    pub(super) fn find_image(&self, id: ImageId) -> Option<usize> {
        let running = self.find(id.pid).filter(|&slot| self.slot(slot).is_some_and(|process| process.id == id));
        running.or_else(|| self.kept.get(&id).copied())
    }

    pub(super) fn image_mut(&mut self, id: ImageId) -> Option<&mut Process> {
        let slot = self.find_image(id)?;
        self.slot_mut(slot)
    }

    /// Returns true if the image has ended while other processes share its memory.
    pub(super) fn keeps(&self, id: ImageId) -> bool {
        self.kept.contains_key(&id)
    }

    pub(super) fn get(&self, pid: Pid) -> Option<&Process> {
        self.slot(self.find(pid)?)
    }

    pub(super) fn get_mut(&mut self, pid: Pid) -> Option<&mut Process> {
        let slot = self.find(pid)?;
        self.slot_mut(slot)
    }

    /// Adds a process, which must be new, and returns its slot.
    pub(super) fn add(&mut self, pid: Pid) -> usize {
        let process = Process::new(self.ordinals.current(pid));
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot] = process;
                slot
            }
            None => {
                self.slots.push(process);
                self.slots.len() - 1
            }
        };
        self.by_pid.insert(pid, slot);
        slot
    }

    /// Returns the id of the image that `pid` runs.
    pub(super) fn current(&self, pid: Pid) -> ImageId {
        self.ordinals.current(pid)
    }

    /// Ends the current image of `pid`. Returns the id of the image and the slot of its process. The caller takes or
    /// keeps the slot. The ordinal advances even if there is no state: another shard may have the image, and all shards
    /// must agree on the next ordinal.
    pub(super) fn end_image(&mut self, pid: Pid) -> (ImageId, Option<usize>) {
        let id = self.ordinals.advance(pid);
        (id, self.by_pid.remove(&pid))
    }

    /// Keeps the image `id`, which has ended, in its slot.
    pub(super) fn keep(&mut self, id: ImageId, slot: usize) {
        self.kept.insert(id, slot);
    }

    /// Makes a slot vacant, and returns its process. The pid of the process must have no slot.
    pub(super) fn take(&mut self, slot: usize) -> Option<Process> {
        let process = self.slots.get_mut(slot)?;
        let id = process.id;
        let process = std::mem::replace(process, Process::new(id));
        self.kept.remove(&id);
        self.vacant.push(slot);
        Some(process)
    }

    /// Removes a process without the end of its image.
    pub(super) fn remove(&mut self, pid: Pid) {
        if let Some(slot) = self.by_pid.remove(&pid) {
            self.take(slot);
        }
    }

    /// Iterates over the processes that run, and over the images that are kept.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.by_pid.values().chain(self.kept.values()).filter_map(|&slot| self.slot(slot))
    }

    /// Iterates over the processes of all slots, including vacant slots.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.slots.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.by_pid.len() + self.kept.len()
    }
}
