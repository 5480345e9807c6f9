//! Holders of locks, and the threads that wait for them.

use std::collections::BTreeSet;

use memtrace_model::{AbsAddr, Bytes, LockIdentity, Nanoseconds, Pid, Tid};
use rustc_hash::FxHashMap;

use super::names::Names;

/// Maximum number of locks with rows of their own.
const MAX_LOCKS: usize = 1 << 14;

/// Maximum number of known holders of a lock. A lock can have several readers. Further holders are ignored.
const MAX_HOLDERS: usize = 64;

/// Name of a lock that was acquired without a wait.
const NO_NAME: &str = "[no name]";

/// The locks of all processes.
#[derive(Debug, Default)]
pub(super) struct Locks {
    numbers: FxHashMap<LockIdentity, u32>,
    /// States of locks. Futexes have no state.
    states: FxHashMap<(Pid, AbsAddr), LockState>,
    /// Locks that each thread holds.
    held: FxHashMap<(Pid, Tid), BTreeSet<AbsAddr>>,
    /// Locks that are new, or have a new place, since the last call of [`Self::take_new`].
    new: Vec<(u32, LockIdentity)>,
}

/// State of a lock.
#[derive(Debug)]
struct LockState {
    name: u32,
    /// Row number of the lock; `None` beyond [`MAX_LOCKS`].
    number: Option<u32>,
    holders: Vec<Hold>,
    waiters: u64,
}

/// A thread that holds a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) tid: Tid,
    pub(super) begin: Nanoseconds,
    pub(super) cpu: Option<Nanoseconds>,
    pub(super) allocated: Option<Bytes>,
}

/// State of a lock at the moment when a thread begins to wait for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitedLock {
    pub(super) name: u32,
    pub(super) number: Option<u32>,
    /// Thread that holds the lock; if there are several, the thread that acquired it last.
    pub(super) holder: Option<Tid>,
    /// Number of threads that wait for the lock, including this thread.
    pub(super) waiters: u64,
}

impl Locks {
    /// Begins a wait for a lock with a name.
    pub(super) fn wait(&mut self, pid: Pid, address: AbsAddr, name: u32) -> WaitedLock {
        let number = self.number(LockIdentity { pid, address, name: Some(name), place: None });
        let is_full = self.states.len() >= MAX_LOCKS;
        let new = || LockState { name, number, holders: Vec::new(), waiters: 0 };
        if is_full && !self.states.contains_key(&(pid, address)) {
            return WaitedLock { name, number, holder: None, waiters: 1 };
        }
        let state = self.states.entry((pid, address)).or_insert_with(new);
        // The lock may be a new one at the address of an earlier lock.
        (state.name, state.number) = (name, number);
        state.waiters += 1;
        WaitedLock { name, number, holder: state.holders.last().map(|hold| hold.tid), waiters: state.waiters }
    }

    /// Returns the holder of a lock, other than `waiter`: the thread `before` if it still holds the lock, otherwise the thread
    /// that acquired it last.
    pub(super) fn holder(&self, pid: Pid, address: AbsAddr, waiter: Tid, before: Option<Tid>) -> Option<Tid> {
        let holders = self.states.get(&(pid, address))?.holders.iter().map(|hold| hold.tid);
        let others: Vec<_> = holders.filter(|tid| *tid != waiter).collect();
        before.filter(|tid| others.contains(tid)).or_else(|| others.last().copied())
    }

    /// Ends a wait.
    pub(super) fn end_wait(&mut self, pid: Pid, address: AbsAddr) {
        if let Some(state) = self.states.get_mut(&(pid, address)) {
            state.waiters = state.waiters.saturating_sub(1);
        }
    }

    /// Records that a thread holds the lock from now on.
    pub(super) fn acquire(&mut self, pid: Pid, address: AbsAddr, hold: Hold, names: &mut Names) {
        if !self.states.contains_key(&(pid, address)) {
            if self.states.len() >= MAX_LOCKS {
                return;
            }
            let name = names.number(NO_NAME);
            let number = self.number(LockIdentity { pid, address, name: Some(name), place: None });
            self.states.insert((pid, address), LockState { name, number, holders: Vec::new(), waiters: 0 });
        }
        if let Some(state) = self.states.get_mut(&(pid, address)) {
            // If a release by this thread was missed, the thread is still in the list.
            state.holders.retain(|holder| holder.tid != hold.tid);
            if state.holders.len() < MAX_HOLDERS {
                state.holders.push(hold);
                self.held.entry((pid, hold.tid)).or_default().insert(address);
            }
        }
    }

    /// Records that a thread has released the lock. Returns the name and the row number of the lock, and the hold;
    /// `None` if the begin of the hold is not known.
    pub(super) fn release(&mut self, pid: Pid, address: AbsAddr, tid: Tid) -> Option<(u32, Option<u32>, Hold)> {
        let state = self.states.get_mut(&(pid, address))?;
        let index = state.holders.iter().position(|hold| hold.tid == tid)?;
        let hold = state.holders.remove(index);
        let found = (state.name, state.number, hold);
        if let Some(held) = self.held.get_mut(&(pid, tid)) {
            held.remove(&address);
            if held.is_empty() {
                self.held.remove(&(pid, tid));
            }
        }
        if state.holders.is_empty() && state.waiters == 0 && self.states.len() >= MAX_LOCKS / 2 {
            self.states.remove(&(pid, address));
        }
        Some(found)
    }

    /// Returns the locks that a thread holds.
    pub(super) fn held_by(&self, pid: Pid, tid: Tid) -> Vec<AbsAddr> {
        self.held.get(&(pid, tid)).into_iter().flatten().copied().collect()
    }

    /// Returns all locks that are held, with their holders.
    pub(super) fn held(&self) -> Vec<(Pid, AbsAddr, Tid)> {
        let of_thread = |(&(pid, tid), locks): (&(Pid, Tid), &BTreeSet<AbsAddr>)| {
            locks.iter().map(move |lock| (pid, *lock, tid)).collect::<Vec<_>>()
        };
        let mut held: Vec<_> = self.held.iter().flat_map(of_thread).collect();
        held.sort_unstable();
        held
    }

    /// Returns the row number of the lock, and adds a row if the lock is new; `None` beyond [`MAX_LOCKS`].
    fn number(&mut self, lock: LockIdentity) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&lock) {
            return Some(number);
        }
        if self.numbers.len() >= MAX_LOCKS {
            return None;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(lock, number);
        self.new.push((number, lock));
        Some(number)
    }

    /// Returns the row number of a futex, and adds a row if the futex is new; `None` beyond [`MAX_LOCKS`].
    pub(super) fn futex(&mut self, pid: Pid, address: AbsAddr) -> Option<u32> {
        self.number(LockIdentity { pid, address, name: None, place: None })
    }

    /// Sets the place of a futex that has a row. `place`: id of the name of its variable.
    pub(super) fn set_place(&mut self, pid: Pid, address: AbsAddr, place: u32) {
        let lock = LockIdentity { pid, address, name: None, place: None };
        let number = self.numbers.get(&lock);
        self.new.extend(number.map(|number| (*number, LockIdentity { place: Some(place), ..lock })));
    }

    /// Returns the locks that are new, or have a new place, since the last call.
    pub(super) fn take_new(&mut self) -> Vec<(u32, LockIdentity)> {
        std::mem::take(&mut self.new)
    }
}
