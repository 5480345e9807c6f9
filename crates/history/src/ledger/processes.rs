//! Processes of a ledger by pid.

use memtrace_model::{ImageId, Pid};
use rustc_hash::FxHashMap;

use super::process::Process;
use crate::ordinals::Ordinals;

/// Processes that have a state. After the exit of a process, only the ordinal of its pid is kept.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// States of processes. A vacant slot has a process without an image.
    slots: Vec<Process>,
    vacant: Vec<usize>,
    by_pid: FxHashMap<Pid, usize>,
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

    /// Ends the current image of `pid`, and returns its id with the state of its process. The ordinal advances even
    /// if there is no state: another shard may have the image, and all shards must agree on the next ordinal.
    pub(super) fn end_image(&mut self, pid: Pid) -> (ImageId, Option<Process>) {
        let id = self.ordinals.advance(pid);
        let process = self.by_pid.remove(&pid).and_then(|slot| {
            self.vacant.push(slot);
            let process = self.slots.get_mut(slot)?;
            Some(std::mem::replace(process, Process::new(id)))
        });
        (id, process)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.by_pid.values().filter_map(|&slot| self.slot(slot))
    }

    /// Iterates over the processes of all slots, including vacant slots.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.slots.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.by_pid.len()
    }
}
