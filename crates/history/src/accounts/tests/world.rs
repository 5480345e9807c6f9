//! Random events, and the expected amounts of the groups over time.

use std::collections::{BTreeMap, VecDeque};

use memtrace_model::{
    AccountCounters, AccountTotals, Amount, Bytes, ImageEnd, ImageId, Losses, MarkBounds, Part, Pid, Tick, Tid,
};
use proptest::prelude::*;

use crate::account_changes::{AccountChanges, AccountState, ImageAccounts, WaterMarks};
use crate::accounts::{AccountKey, KeyPart};

pub(super) const fn amount(bytes: u64, count: u64) -> Amount {
    Amount { bytes: Bytes(bytes), count }
}

pub(super) fn image(number: u32) -> ImageId {
    ImageId { pid: Pid(100 + number), ordinal: 0 }
}

/// Keys of three groups: a thread, its image, and all images with even or with odd pids.
pub(super) fn keys(id: ImageId, tid: Tid) -> [AccountKey; 3] {
    [key(&format!("thread {id:?} {:?}", Some(tid))), key(&format!("image {id:?}")), key(parity(id))]
}

pub(super) const fn parity(id: ImageId) -> &'static str {
    if id.pid.0.is_multiple_of(2) { "even" } else { "odd" }
}

pub(super) fn key(name: &str) -> AccountKey {
    AccountKey([KeyPart::Named(name.into())].into())
}

/// Accounts of threads, as a ledger keeps them.
#[derive(Default)]
pub(super) struct Counted {
    accounts: BTreeMap<(ImageId, Tid), (AccountCounters, WaterMarks)>,
    changed: Vec<(ImageId, Tid)>,
    ended: Vec<ImageAccounts>,
    /// Threads that have ended since the last take. Their accounts were merged.
    merged: Vec<(ImageId, Tid)>,
    live: Amount,
    marks: WaterMarks,
}

impl Counted {
    fn change(&mut self, id: ImageId, tid: Tid, is_free: bool, bytes: u64) {
        let (counters, marks) = self.accounts.entry((id, tid)).or_default();
        if !self.changed.contains(&(id, tid)) {
            *marks = WaterMarks::at(counters.current());
            self.changed.push((id, tid));
        }
        let block = amount(bytes, 1);
        if is_free {
            counters.free += block;
            self.live -= block;
        } else {
            counters.alloc += block;
            self.live += block;
        }
        marks.include(counters.current());
        self.marks.include(self.live);
    }

    fn end(&mut self, id: ImageId) {
        let accounts = self.states(|of| of == id);
        let merged = self.take_merged(id);
        for ((_, _), (counters, _)) in self.accounts.extract_if(.., |(of, _), _| *of == id) {
            self.live -= counters.current();
        }
        self.marks.include(self.live);
        self.ended.push(ImageAccounts { id, ended: Some(ImageEnd::Exit), ended_threads: Vec::new(), merged, accounts });
    }

    /// Merges the account of a thread into the account of ended threads.
    fn end_thread(&mut self, id: ImageId, tid: Tid) {
        let Some((ended, _)) = self.accounts.remove(&(id, tid)) else { return };
        self.changed.retain(|changed| *changed != (id, tid));
        self.merged.push((id, tid));
        let (counters, marks) = self.accounts.entry((id, Tid::ENDED)).or_default();
        if !self.changed.contains(&(id, Tid::ENDED)) {
            *marks = WaterMarks::at(counters.current());
            self.changed.push((id, Tid::ENDED));
        }
        counters.add(&ended);
        marks.include(counters.current());
    }

    fn take_merged(&mut self, id: ImageId) -> Vec<Part> {
        self.merged.extract_if(.., |(of, _)| *of == id).map(|(_, tid)| Part::WHOLE.with_thread(tid)).collect()
    }

    fn states(&mut self, is_of: impl Fn(ImageId) -> bool) -> Vec<AccountState> {
        let (taken, rest) = self.changed.iter().partition(|(id, _)| is_of(*id));
        self.changed = rest;
        let taken: Vec<(ImageId, Tid)> = taken;
        let state = |key: (ImageId, Tid)| {
            let (counters, marks) = self.accounts[&key];
            AccountState { account: Part::WHOLE.with_thread(key.1), counters, marks, peak_at: Tick(0) }
        };
        taken.into_iter().map(state).collect()
    }

    pub(super) fn take(&mut self) -> AccountChanges {
        let mut images = std::mem::take(&mut self.ended);
        let mut ids: Vec<ImageId> = self.changed.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let merged = self.take_merged(id);
            images.push(ImageAccounts {
                id,
                ended: None,
                ended_threads: Vec::new(),
                merged,
                accounts: self.states(|of| of == id),
            });
        }
        let marks = std::mem::replace(&mut self.marks, WaterMarks::at(self.live));
        AccountChanges {
            images,
            groups: Vec::new(),
            joined: Vec::new(),
            live: self.live,
            marks,
            peak_at: Tick(0),
            losses: Losses::default(),
            interval_end: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Image, thread, size.
    Alloc(u32, u32, u64),
    /// Frees the oldest block of the thread.
    Free(u32, u32),
    End(u32),
    /// Image, thread.
    EndThread(u32, u32),
    /// Takes the changes.
    Take,
    Reset,
}

pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (0..3u32, 0..3u32, 1..1000u64).prop_map(|(image, thread, size)| Event::Alloc(image, thread, size)),
        6 => (0..3u32, 0..3u32).prop_map(|(image, thread)| Event::Free(image, thread)),
        1 => (0..3u32).prop_map(Event::End),
        3 => Just(Event::Take),
        1 => Just(Event::Reset),
    ];
    prop::collection::vec(event, 1..200)
}

/// Events that include ends of threads. Thread [`Tid::ENDED`] owns the blocks that ended threads leave.
pub(super) fn events_of_threads() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (0..2u32, 0..3u32, 1..1000u64).prop_map(|(image, thread, size)| Event::Alloc(image, thread, size)),
        6 => (0..2u32, prop_oneof![0..3u32, Just(Tid::ENDED.0)]).prop_map(|(image, thread)| Event::Free(image, thread)),
        3 => (0..2u32, 0..3u32).prop_map(|(image, thread)| Event::EndThread(image, thread)),
        1 => (0..2u32).prop_map(Event::End),
        3 => Just(Event::Take),
        1 => Just(Event::Reset),
    ];
    prop::collection::vec(event, 1..200)
}

/// Expected amounts of one group.
#[derive(Default)]
pub(super) struct Known {
    live: Amount,
    exit: Amount,
    marks: WaterMarks,
}

/// Ends a process that holds `held`.
fn end(known: &mut Known, held: Amount) {
    known.live -= held;
    known.exit += held;
    known.marks.include(known.live);
}

pub(super) fn assert_within(account: &AccountTotals, known: &Known, is_exact: bool) {
    let MarkBounds { low, high } = account.marks.unwrap();
    assert_eq!((account.live, account.exit), (known.live, known.exit));
    for (bounds, mark) in [(low, known.marks.low), (high, known.marks.high)] {
        for (least, most, mark) in [
            (bounds.at_least.bytes.0, bounds.at_most.bytes.0, mark.bytes.0),
            (bounds.at_least.count, bounds.at_most.count, mark.count),
        ] {
            assert!(least <= mark && mark <= most, "{least} to {most}: {mark}, of {account:?}");
            assert!(!is_exact || least == most, "{account:?}");
        }
    }
    assert!(low.at_most.bytes <= account.live.bytes && account.live.bytes <= high.at_least.bytes);
}

/// Accounts, and the expected amounts of their groups.
pub(super) struct World {
    pub(super) counted: Counted,
    blocks: BTreeMap<(u32, u32), VecDeque<u64>>,
    running: [ImageId; 3],
    pub(super) known: BTreeMap<AccountKey, Known>,
    pub(super) total: Known,
}

impl World {
    pub(super) fn new() -> Self {
        let (known, total) = Default::default();
        Self { counted: Counted::default(), blocks: BTreeMap::new(), running: [0, 1, 2].map(image), known, total }
    }

    /// Applies an event. Returns the image that the event ends.
    pub(super) fn apply(&mut self, event: &Event) -> Option<ImageId> {
        match *event {
            Event::Alloc(number, thread, size) => {
                self.blocks.entry((number, thread)).or_default().push_back(size);
                self.change(number, thread, false, size);
            }
            Event::Free(number, thread) => {
                if let Some(size) = self.blocks.get_mut(&(number, thread)).and_then(VecDeque::pop_front) {
                    self.change(number, thread, true, size);
                }
            }
            Event::End(number) => {
                let id = self.running[number as usize];
                self.running[number as usize].ordinal += 1;
                self.counted.end(id);
                for ((_, thread), sizes) in self.blocks.extract_if(.., |(of, _), _| *of == number) {
                    let held = amount(sizes.iter().sum(), sizes.len() as u64);
                    keys(id, Tid(thread)).into_iter().for_each(|key| end(self.known.entry(key).or_default(), held));
                    end(&mut self.total, held);
                }
                return Some(id);
            }
            Event::EndThread(number, thread) => {
                let id = self.running[number as usize];
                self.counted.end_thread(id, Tid(thread));
                if let Some(left) = self.blocks.remove(&(number, thread)) {
                    self.blocks.entry((number, Tid::ENDED.0)).or_default().extend(left);
                }
                if let Some(Known { live, .. }) = self.known.remove(&keys(id, Tid(thread))[0]) {
                    let ended = self.known.entry(keys(id, Tid::ENDED)[0].clone()).or_default();
                    ended.live += live;
                    ended.marks.include(ended.live);
                }
            }
            Event::Take => {}
            Event::Reset => {
                let all = self.known.values_mut().chain([&mut self.total]);
                all.for_each(|known| known.marks = WaterMarks::at(known.live));
            }
        }
        None
    }

    fn change(&mut self, number: u32, thread: u32, is_free: bool, size: u64) {
        let (id, block) = (self.running[number as usize], amount(size, 1));
        self.counted.change(id, Tid(thread), is_free, size);
        let change = |known: &mut Known| {
            if is_free {
                known.live -= block;
            } else {
                known.live += block;
            }
            known.marks.include(known.live);
        };
        keys(id, Tid(thread)).into_iter().for_each(|key| change(self.known.entry(key).or_default()));
        change(&mut self.total);
    }
}
