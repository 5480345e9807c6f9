//! Tests of groups with events in a known order.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::model::{AmountBounds, Bytes, MarkBounds, Pid, Tid};

const fn amount(bytes: u64, count: u64) -> Amount {
    Amount { bytes: Bytes(bytes), count }
}

fn image(number: u32) -> ImageId {
    ImageId { pid: Pid(100 + number), ordinal: 0 }
}

/// Keys of a thread and of its image.
fn keys(id: ImageId, tid: Tid) -> [AccountKey; 2] {
    [key(&format!("{id:?} {:?}", Some(tid))), key(&format!("{id:?}"))]
}

fn key(name: &str) -> AccountKey {
    AccountKey([KeyPart::Named(name.into())].into())
}

/// Accounts of threads as a ledger has them.
#[derive(Default)]
struct Counted {
    accounts: BTreeMap<(ImageId, Tid), (AccountCounters, WaterMarks)>,
    changed: Vec<(ImageId, Tid)>,
    ended: Vec<ImageAccounts>,
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
        for ((_, _), (counters, _)) in self.accounts.extract_if(.., |(of, _), _| *of == id) {
            self.live -= counters.current();
        }
        self.marks.include(self.live);
        self.ended.push(ImageAccounts { id, ended: Some(ImageEnd::Exit), accounts });
    }

    fn states(&mut self, is_of: impl Fn(ImageId) -> bool) -> Vec<AccountState> {
        let (taken, rest) = self.changed.iter().partition(|(id, _)| is_of(*id));
        self.changed = rest;
        let taken: Vec<(ImageId, Tid)> = taken;
        let state = |key: (ImageId, Tid)| {
            let (counters, marks) = self.accounts[&key];
            AccountState { account: Partition::Thread(key.1), counters, marks, peak_at: Tick(0) }
        };
        taken.into_iter().map(state).collect()
    }

    fn take(&mut self) -> AccountChanges {
        let mut images = std::mem::take(&mut self.ended);
        let mut ids: Vec<ImageId> = self.changed.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            images.push(ImageAccounts { id, ended: None, accounts: self.states(|of| of == id) });
        }
        let marks = std::mem::replace(&mut self.marks, WaterMarks::at(self.live));
        AccountChanges { images, live: self.live, marks, peak_at: Tick(0) }
    }
}

/// An event.
#[derive(Clone, Debug)]
enum Event {
    /// Image, thread, size.
    Alloc(u32, u32, u64),
    /// Frees the oldest block of the thread.
    Free(u32, u32),
    End(u32),
    /// The changes are taken.
    Take,
    Reset,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (0..3u32, 0..3u32, 1..1000u64).prop_map(|(image, thread, size)| Event::Alloc(image, thread, size)),
        6 => (0..3u32, 0..3u32).prop_map(|(image, thread)| Event::Free(image, thread)),
        1 => (0..3u32).prop_map(Event::End),
        3 => Just(Event::Take),
        1 => Just(Event::Reset),
    ];
    prop::collection::vec(event, 1..200)
}

/// Amounts over time of one group.
#[derive(Default)]
struct Known {
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

fn assert_within(account: &AccountTotals, known: &Known, is_exact: bool) {
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

proptest! {
    #[test]
    fn marks_are_within_bounds_and_exact_for_one_account(events in events()) {
        let mut counted = Counted::default();
        let mut blocks: BTreeMap<(u32, u32), VecDeque<u64>> = BTreeMap::new();
        let mut by_thread = AccountGroups::new();
        let mut by_image = AccountGroups::new();
        let (mut threads, mut images, mut total): (BTreeMap<_, Known>, BTreeMap<_, Known>, Known) = Default::default();
        let identify_thread = |id, part: Partition| Some(key(&format!("{id:?} {:?}", part.thread())));
        let identify_image = |id, _| Some(key(&format!("{id:?}")));
        let mut running = [0, 1, 2].map(image);
        for event in events.into_iter().chain([Event::Take]) {
            let mut change = |number, thread, is_free, size: u64| {
                let id = running[number as usize];
                counted.change(id, Tid(thread), is_free, size);
                let [of_thread, of_image] = keys(id, Tid(thread));
                for known in [threads.entry(of_thread).or_default(), images.entry(of_image).or_default(), &mut total] {
                    if is_free { known.live -= amount(size, 1) } else { known.live += amount(size, 1) }
                    known.marks.include(known.live);
                }
            };
            match event {
                Event::Alloc(number, thread, size) => {
                    blocks.entry((number, thread)).or_default().push_back(size);
                    change(number, thread, false, size);
                }
                Event::Free(number, thread) => {
                    if let Some(size) = blocks.get_mut(&(number, thread)).and_then(VecDeque::pop_front) {
                        change(number, thread, true, size);
                    }
                }
                Event::End(number) => {
                    let id = running[number as usize];
                    running[number as usize].ordinal += 1;
                    counted.end(id);
                    let mut of_all = amount(0, 0);
                    for ((_, thread), sizes) in blocks.extract_if(.., |(of, _), _| *of == number) {
                        let held = amount(sizes.iter().sum(), sizes.len() as u64);
                        of_all += held;
                        end(threads.entry(keys(id, Tid(thread))[0].clone()).or_default(), held);
                    }
                    end(images.entry(keys(id, Tid(0))[1].clone()).or_default(), of_all);
                    end(&mut total, of_all);
                }
                Event::Take => {
                    let changes = counted.take();
                    by_thread.apply(changes.clone(), identify_thread);
                    by_image.apply(changes, identify_image);
                    by_thread.all().for_each(|(key, account)| assert_within(&account, &threads[key], true));
                    by_image.all().for_each(|(key, account)| assert_within(&account, &images[key], false));
                    assert_within(&by_image.total(), &total, true);
                }
                Event::Reset => {
                    let changes = counted.take();
                    by_thread.apply(changes.clone(), identify_thread);
                    by_image.apply(changes, identify_image);
                    by_thread.reset_marks();
                    by_image.reset_marks();
                    let all = threads.values_mut().chain(images.values_mut()).chain([&mut total]);
                    all.for_each(|known| known.marks = WaterMarks::at(known.live));
                }
            }
        }
        prop_assert_eq!(by_thread.number_of_groups(), threads.len());
    }
}

fn allocated(id: ImageId, bytes: u64, ended: Option<ImageEnd>) -> AccountChanges {
    let counters = AccountCounters { alloc: amount(bytes, 1), ..AccountCounters::default() };
    let marks = WaterMarks { low: amount(0, 0), high: amount(bytes, 1) };
    let account = AccountState { account: Partition::Whole, counters, marks, peak_at: Tick(7) };
    let live = if ended.is_some() { amount(0, 0) } else { amount(bytes, 1) };
    AccountChanges { images: vec![ImageAccounts { id, ended, accounts: vec![account] }], live, marks, peak_at: Tick(7) }
}

#[test]
fn images_are_identified_when_they_are_known() {
    let mut groups = AccountGroups::new();
    groups.apply(allocated(image(1), 100, None), |_, _| None);
    groups.apply(allocated(image(2), 10, Some(ImageEnd::Exec)), |_, _| None);
    assert_eq!((groups.number_of_groups(), groups.total().counters.alloc), (0, amount(110, 2)));
    groups.apply(allocated(image(1), 300, None), |_, _| Some(key("first")));
    groups.complete(image(2), |_| key("second"), AccountKey::clone, true);
    let accounts: BTreeMap<_, _> = groups.all().collect();
    let first = &accounts[&key("first")];
    assert_eq!((first.live, first.counters.alloc), (amount(300, 1), amount(300, 1)));
    let second = &accounts[&key("second")];
    assert_eq!((second.live, second.discarded), (amount(0, 0), amount(10, 1)));
    assert_eq!(second.marks.unwrap().high, AmountBounds { at_least: amount(10, 1), at_most: amount(10, 1) });
    assert_eq!(second.peak_at, Some(Tick(7)));
}

#[test]
fn ended_processes_with_one_name_are_one_group() {
    let process = |id, _| Some(AccountKey([KeyPart::Process(id)].into()));
    for (is_unique, most) in [(false, amount(600, 3)), (true, amount(300, 1))] {
        let mut groups = AccountGroups::new();
        for number in 1..=3 {
            groups.apply(allocated(image(number), 100 * u64::from(number), Some(ImageEnd::Exit)), process);
            groups.complete(image(number), |_| key("not asked"), |_| key("cc1"), is_unique);
        }
        let accounts: Vec<_> = groups.all().collect();
        let [(_, account)] = accounts.as_slice() else { panic!("{accounts:?}") };
        assert_eq!((account.counters.alloc, account.exit), (amount(600, 3), amount(600, 3)));
        assert_eq!(account.marks.unwrap().high, AmountBounds { at_least: amount(300, 1), at_most: most });
    }
}
