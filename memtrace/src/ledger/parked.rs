//! Blocks that a realloc has given up and may take back.

use rustc_hash::FxHashMap;

use super::block::Block;
use crate::model::{AbsAddr, Tid};

/// What a thread's last realloc gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Park {
    pub(super) address: AbsAddr,
    /// The block; `None` where the books did not have it.
    pub(super) block: Option<Block>,
}

/// The last [`Park`] of each thread.
///
/// A thread's parks may be split by address over several ledgers, and each keeps the last that it got. That is enough: a
/// restore follows the thread's last park of all, which is also the last in the ledger that gets both.
///
/// Nobody says when a thread ends, so the oldest must be forgotten. There are two generations: when the young one is
/// full the old one goes. What goes is final already, unless 32,768 other threads have begun a realloc during one.
#[derive(Debug, Default)]
pub(super) struct Parked {
    young: FxHashMap<Tid, Park>,
    old: FxHashMap<Tid, Park>,
}

/// How many threads a generation holds.
const GENERATION: usize = 1 << 15;

impl Parked {
    /// Remembers what `tid` has given up, in place of what it gave up before.
    pub(super) fn put(&mut self, tid: Tid, park: Park) {
        self.old.remove(&tid);
        if self.young.len() >= GENERATION && !self.young.contains_key(&tid) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(tid, park);
    }

    /// Forgets what `tid` gave up last, if it lies at `address`.
    pub(super) fn take(&mut self, tid: Tid, address: AbsAddr) -> Option<Park> {
        if !self.holds(tid, address) {
            return None;
        }
        self.young.remove(&tid).or_else(|| self.old.remove(&tid))
    }

    /// Whether what `tid` gave up last lies at `address`.
    fn holds(&self, tid: Tid, address: AbsAddr) -> bool {
        self.young.get(&tid).or_else(|| self.old.get(&tid)).is_some_and(|park| park.address == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: AbsAddr = AbsAddr(0x1000);
    const PARK: Park = Park { address: ADDRESS, block: None };

    #[test]
    fn a_park_is_kept_while_as_many_threads_park_as_a_generation_holds() {
        let mut parked = Parked::default();
        for tid in 0..=GENERATION as u32 {
            parked.put(Tid(tid), PARK);
        }
        assert_eq!(parked.take(Tid(0), AbsAddr(0x2000)), None);
        assert_eq!(parked.take(Tid(0), ADDRESS), Some(PARK));
        assert_eq!(parked.take(Tid(0), ADDRESS), None);
    }

    #[test]
    fn never_more_than_two_generations_are_kept() {
        let mut parked = Parked::default();
        for tid in 0..5 * GENERATION as u32 {
            parked.put(Tid(tid), PARK);
            assert!(parked.young.len() + parked.old.len() <= 2 * GENERATION);
        }
        assert!(!parked.holds(Tid(0), ADDRESS));
    }

    #[test]
    fn a_thread_that_parks_again_forgets_the_first_in_whichever_generation_it_is() {
        let mut parked = Parked::default();
        for tid in 0..=GENERATION as u32 {
            parked.put(Tid(tid), PARK);
        }
        let second = Park { address: AbsAddr(0x2000), block: None };
        parked.put(Tid(0), second);
        assert_eq!(parked.take(Tid(0), second.address), Some(second));
        assert!(!parked.holds(Tid(0), ADDRESS));
    }
}
