//! Blocks freed by a realloc that has not returned. If the realloc fails, the free is undone.

use memtrace_model::{AbsAddr, Tick, Tid};
use rustc_hash::FxHashMap;

use super::accounts::LowMarks;
use super::block::Block;
use super::samples::LiveSample;

/// Free of a block by the latest realloc of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TentativeFree {
    pub(super) address: AbsAddr,
    /// The freed block; `None` if it was unknown.
    pub(super) block: Option<Block>,
    /// Sample of the freed block, if it was sampled.
    pub(super) sample: Option<Box<LiveSample>>,
    /// Time of the free.
    pub(super) tick: Tick,
    /// True if the block counts as temporary.
    pub(super) is_temporary: bool,
    /// Low-water marks before the free; `None` without accounts, or if the block was unknown.
    pub(super) marks: Option<LowMarks>,
    /// How the free was counted, if the block was unknown.
    pub(super) unknown: Option<UnknownFree>,
    /// True if the same call has reported the free a second time.
    pub(super) is_repeated: bool,
}

/// Free of an unknown block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownFree {
    /// The block was allocated before tracing began, or filtered. The value is the index of the account that counts the
    /// free; `None` without accounts.
    Unmatched(Option<u32>),
    /// The process is demoted, so the block was probably dropped.
    OfDropped,
}

/// Latest tentative free of each thread.
///
/// The tentative frees of a thread may be split by address over several ledgers. It is sufficient that each ledger
/// keeps the latest one that it received: an undo refers to the thread's latest tentative free, and both go to the
/// same ledger.
///
/// Exits of threads are recorded only in some traces with accounts, so old entries are dropped: when the young
/// generation is full, it replaces the old generation. An entry that an undo needs is dropped only if 32,768 other
/// threads started a realloc during one realloc.
#[derive(Debug, Default)]
pub(super) struct TentativeFrees {
    young: FxHashMap<Tid, TentativeFree>,
    old: FxHashMap<Tid, TentativeFree>,
}

/// Maximum number of threads of a generation.
const GENERATION: usize = 1 << 15;

impl TentativeFrees {
    /// Sets the latest tentative free of `tid`.
    pub(super) fn insert(&mut self, tid: Tid, free: TentativeFree) {
        self.old.remove(&tid);
        if self.young.len() >= GENERATION && !self.young.contains_key(&tid) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(tid, free);
    }

    /// Handles the second report of a call that frees a sampled block: the probe of each call and the stub of a patched process
    /// both report it. Returns true if the latest tentative free of `tid` was the first report of the call. The first report
    /// stays, because it has the block. A third report belongs to another call.
    pub(super) fn repeat(&mut self, tid: Tid, address: AbsAddr) -> bool {
        let latest = self.young.get_mut(&tid).or_else(|| self.old.get_mut(&tid));
        let is_first =
            |free: &&mut TentativeFree| free.address == address && free.sample.is_some() && !free.is_repeated;
        let Some(first) = latest.filter(is_first) else { return false };
        first.is_repeated = true;
        true
    }

    /// Removes and returns the latest tentative free of `tid`, if its block has this address.
    pub(super) fn remove(&mut self, tid: Tid, address: AbsAddr) -> Option<TentativeFree> {
        if !self.contains(tid, address) {
            return None;
        }
        self.young.remove(&tid).or_else(|| self.old.remove(&tid))
    }

    /// Removes the tentative free of a thread that has exited: its realloc does not return.
    pub(super) fn forget(&mut self, tid: Tid) {
        self.young.remove(&tid);
        self.old.remove(&tid);
    }

    /// Iterates over the indices of the stacks with blocks that an undo can restore.
    pub(super) fn stacks(&self) -> impl Iterator<Item = u32> {
        let frees = self.young.values().chain(self.old.values());
        frees.filter_map(|free| free.block.map(|block| block.stack))
    }

    fn contains(&self, tid: Tid, address: AbsAddr) -> bool {
        self.young.get(&tid).or_else(|| self.old.get(&tid)).is_some_and(|free| free.address == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: AbsAddr = AbsAddr(0x1000);
    const FREE: TentativeFree = TentativeFree {
        address: ADDRESS,
        block: None,
        sample: None,
        tick: Tick(0),
        is_temporary: false,
        marks: None,
        unknown: None,
        is_repeated: false,
    };

    #[test]
    fn an_entry_is_kept_for_one_generation() {
        let mut frees = TentativeFrees::default();
        for tid in 0..=GENERATION as u32 {
            frees.insert(Tid(tid), FREE);
        }
        assert_eq!(frees.remove(Tid(0), AbsAddr(0x2000)), None);
        assert_eq!(frees.remove(Tid(0), ADDRESS), Some(FREE));
        assert_eq!(frees.remove(Tid(0), ADDRESS), None);
    }

    #[test]
    fn at_most_two_generations_are_kept() {
        let mut frees = TentativeFrees::default();
        for tid in 0..5 * GENERATION as u32 {
            frees.insert(Tid(tid), FREE);
            assert!(frees.young.len() + frees.old.len() <= 2 * GENERATION);
        }
        assert!(!frees.contains(Tid(0), ADDRESS));
    }

    #[test]
    fn a_new_entry_of_a_thread_replaces_the_old_one() {
        let mut frees = TentativeFrees::default();
        for tid in 0..=GENERATION as u32 {
            frees.insert(Tid(tid), FREE);
        }
        let second = TentativeFree { address: AbsAddr(0x2000), ..FREE };
        frees.insert(Tid(0), second.clone());
        assert_eq!(frees.remove(Tid(0), second.address), Some(second));
        assert!(!frees.contains(Tid(0), ADDRESS));
    }
}
