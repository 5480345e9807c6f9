//! Tests of groups with events in a known order.

mod world;

use std::collections::{BTreeMap, VecDeque};

use memtrace_model::{AccountNumber, AmountBounds, Losses, MarkBounds, Tick, Tid};
use proptest::prelude::*;

use super::*;
use crate::account_changes::{AccountState, WaterMarks};
use world::{Event, World, amount, assert_within, events, events_of_threads, image, key, keys, parity};

/// Maximum number of groups.
const MAX: usize = 1000;

/// Asserts that the bounds of all groups contain the expected marks, and that the marks of the total are exact.
fn assert_all_within(groups: &AccountGroups, world: &World, is_exact: bool) {
    groups.all().for_each(|(key, account)| assert_within(&account, &world.known[key], is_exact));
    assert_within(&groups.total(), &world.total, true);
}

/// Groups, and the sums of the changes that their recording receives.
struct Recorded {
    groups: AccountGroups,
    accounts: BTreeMap<AccountNumber, AccountTotals>,
    keys: BTreeMap<AccountNumber, AccountKey>,
}

impl Recorded {
    fn new() -> Self {
        let (accounts, keys) = Default::default();
        Self { groups: AccountGroups::new(MAX).recorded(1000), accounts, keys }
    }

    fn apply(&mut self, changes: AccountChanges, key: impl Fn(ImageId, Part) -> AccountKey) {
        self.groups.apply(changes, |id, part| Some(key(id, part)));
        let interval = self.groups.end_interval().unwrap();
        for (number, totals) in interval.totals {
            let known = self.accounts.entry(number).or_insert(totals);
            *known = known.followed_by(totals);
        }
        self.keys.extend(interval.keys);
    }

    /// Asserts that the recording of these events has the totals of all groups, with their marks.
    fn check(mut self, events: Vec<Event>, key: impl Fn(ImageId, Part) -> AccountKey) {
        let mut world = World::new();
        for event in events.into_iter().filter(|event| !matches!(event, Event::Reset)).chain([Event::Take]) {
            if matches!(event, Event::Take) {
                self.apply(world.counted.take(), &key);
            }
            world.apply(&event);
        }
        let total = self.accounts[&AccountNumber::TOTAL];
        assert_eq!(total, self.groups.total());
        let named: BTreeMap<AccountKey, AccountTotals> =
            self.keys.iter().map(|(number, key)| (key.clone(), self.accounts[number])).collect();
        for (key, totals) in self.groups.all() {
            assert_eq!(named[key], totals, "{key:?}");
        }
        let mut sum = AccountCounters::default();
        self.accounts
            .iter()
            .filter(|(number, _)| **number != AccountNumber::TOTAL)
            .for_each(|(_, totals)| sum.add(&totals.counters));
        assert_eq!(sum, total.counters);
        let all: BTreeMap<AccountNumber, AccountKey> = self.groups.recorded_keys().into_iter().collect();
        assert!(all.iter().all(|(number, key)| self.keys[number] == *key));
    }
}

#[test]
fn accounts_beyond_the_limit_of_a_recording_are_counted() {
    let mut groups = AccountGroups::new(MAX).recorded(2);
    for number in 0..5 {
        let others = amount(10 * u64::from(number), u64::from(number));
        groups.apply(allocated(image(number), 10, None, others), |id, _| Some(key(&format!("{id:?}"))));
        groups.end_interval().unwrap();
    }
    assert_eq!((groups.recorded_keys().len(), groups.number_of_unrecorded()), (2, 3));
}

/// Minimum value of `known_at` of the images that are identified at their completion. An image with a lower value N is
/// identified after N takes.
const AT_COMPLETION: u32 = 20;
/// From this value of `known_at` on, an image is identified at the end of the run.
const AT_END: u32 = 25;

proptest! {
    #[test]
    fn marks_are_within_bounds_and_exact_for_one_account(events in events()) {
        let mut world = World::new();
        let [mut by_thread, mut by_image, mut by_parity] = [(); 3].map(|()| AccountGroups::new(MAX));
        for event in events.into_iter().chain([Event::Take]) {
            if matches!(event, Event::Take | Event::Reset) {
                let changes = world.counted.take();
                by_thread.apply(changes.clone(), |id, part| Some(keys(id, part.thread().unwrap())[0].clone()));
                by_image.apply(changes.clone(), |id, _| Some(keys(id, Tid(0))[1].clone()));
                by_parity.apply(changes, |id, _| Some(key(parity(id))));
                assert_all_within(&by_thread, &world, true);
                assert_all_within(&by_image, &world, false);
                assert_all_within(&by_parity, &world, false);
            }
            if matches!(event, Event::Reset) {
                [&mut by_thread, &mut by_image, &mut by_parity].into_iter().for_each(AccountGroups::reset_marks);
            }
            world.apply(&event);
        }
        let threads = world.known.keys().filter(|key| matches!(&key.0[0], KeyPart::Named(name) if name.starts_with("thread")));
        prop_assert_eq!(by_thread.number_of_groups(), threads.count());
    }

    #[test]
    fn ended_threads_have_one_account_with_exact_marks(events in events_of_threads()) {
        let mut world = World::new();
        let mut groups = AccountGroups::new(MAX);
        let thread = |id, part: Part| AccountKey([KeyPart::Thread(id, part.thread())].into());
        for event in events.into_iter().chain([Event::Take]) {
            if matches!(event, Event::Take | Event::Reset) {
                groups.apply(world.counted.take(), |id, part| Some(thread(id, part)));
                for (group, account) in groups.all() {
                    let KeyPart::Thread(id, Some(tid)) = group.0[0] else { panic!("{group:?}") };
                    assert_within(&account, &world.known[&keys(id, tid)[0]], true);
                }
                let threads = world.known.keys().filter(|key| matches!(&key.0[0], KeyPart::Named(name) if name.starts_with("thread")));
                prop_assert_eq!(groups.number_of_groups(), threads.count());
                let total = groups.total();
                assert_within(&total, &world.total, true);
                let sum = groups.all().fold(AccountCounters::default(), |mut sum, (_, account)| {
                    sum.add(&account.counters);
                    sum
                });
                prop_assert_eq!(sum, total.counters);
            }
            if matches!(event, Event::Reset) {
                groups.reset_marks();
            }
            world.apply(&event);
        }
    }

    #[test]
    fn recorded_intervals_add_up_to_the_totals(of_threads in events_of_threads(), of_images in events()) {
        let thread = |id, part: Part| AccountKey([KeyPart::Thread(id, part.thread())].into());
        Recorded::new().check(of_threads, thread);
        Recorded::new().check(of_images, |id, _| key(parity(id)));
    }

    #[test]
    fn marks_of_late_images_are_within_bounds(events in events(), known_at in prop::collection::vec(0..30u32, 30)) {
        let known_at = |id: ImageId| known_at[((id.pid.0 - 100) * 10 + id.ordinal % 10) as usize];
        let mut world = World::new();
        let [mut by_thread, mut by_parity] = [(); 2].map(|()| AccountGroups::new(MAX));
        let by_process = |id, _| Some(AccountKey([KeyPart::Process(id)].into()));
        let mut merged = AccountGroups::new(MAX);
        let mut ended = VecDeque::new();
        let mut takes = 0;
        let is_last = |number| number > 0;
        for (event, last) in events.into_iter().map(|event| (event, 0)).chain((1..=4).map(|last| (Event::Take, last))) {
            if matches!(event, Event::Take | Event::Reset) {
                takes += 1;
                let changes = world.counted.take();
                let is_known = |id| known_at(id) < AT_COMPLETION.min(takes);
                let thread = |id, part: Part| keys(id, part.thread().unwrap())[0].clone();
                by_thread.apply(changes.clone(), |id, part| is_known(id).then(|| thread(id, part)));
                by_parity.apply(changes.clone(), |id, _| is_known(id).then(|| key(parity(id))));
                merged.apply(changes, by_process);
                while let Some((id, _)) = ended.pop_front_if(|(_, at)| *at + 2 < takes || is_last(last)) {
                    merged.complete(id, ImageEnd::Exit, |_| key("not asked"), |_| key("all"), false);
                    if known_at(id) < AT_END {
                        by_thread.complete(id, ImageEnd::Exit, |part| thread(id, part), AccountKey::clone, true);
                        by_parity.complete(id, ImageEnd::Exit, |_| key(parity(id)), AccountKey::clone, true);
                    }
                }
                if last == 4 {
                    by_thread.finish(thread);
                    by_parity.finish(|id, _| key(parity(id)));
                    assert_all_within(&by_thread, &world, true);
                    assert_all_within(&by_parity, &world, false);
                }
            }
            if matches!(event, Event::Reset) {
                [&mut by_thread, &mut by_parity, &mut merged].into_iter().for_each(AccountGroups::reset_marks);
            }
            ended.extend(world.apply(&event).map(|id| (id, takes)));
        }
        let last = [0, 1, 2].map(|number| world.apply(&Event::End(number)).unwrap());
        merged.apply(world.counted.take(), by_process);
        for id in last {
            merged.complete(id, ImageEnd::Exit, |_| key("not asked"), |_| key("all"), false);
        }
        for (_, account) in merged.all() {
            assert_within(&account, &world.total, false);
        }
    }
}

/// Changes of an interval: image `id` allocates one block, while other images hold `others`.
fn allocated(id: ImageId, bytes: u64, ended: Option<ImageEnd>, others: Amount) -> AccountChanges {
    let block = amount(bytes, 1);
    let counters = AccountCounters { alloc: block, ..AccountCounters::default() };
    let marks = WaterMarks { low: amount(0, 0), high: block };
    let account = AccountState { account: Part::WHOLE, counters, marks, peak_at: Tick(7) };
    let live = if ended.is_some() { others } else { others + block };
    let marks = WaterMarks { low: others, high: others + block };
    let images =
        vec![ImageAccounts { id, ended, ended_threads: Vec::new(), merged: Vec::new(), accounts: vec![account] }];
    AccountChanges {
        images,
        groups: Vec::new(),
        joined: Vec::new(),
        live,
        marks,
        peak_at: Tick(7),
        losses: Losses::default(),
        interval_end: None,
    }
}

#[test]
fn images_are_identified_when_they_are_known() {
    let mut groups = AccountGroups::new(MAX);
    let nothing = amount(0, 0);
    groups.apply(allocated(image(1), 100, None, nothing), |_, _| None);
    groups.apply(allocated(image(2), 10, Some(ImageEnd::Exec), amount(100, 1)), |_, _| None);
    assert_eq!((groups.number_of_groups(), groups.total().counters.alloc), (0, amount(110, 2)));
    groups.apply(allocated(image(1), 300, None, nothing), |_, _| Some(key("first")));
    groups.complete(image(2), ImageEnd::Exec, |_| key("second"), AccountKey::clone, true);
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
    let cases = [
        (false, amount(1000, 9), amount(600, 3)),
        (true, amount(1000, 9), amount(300, 1)),
        // No group exceeds the sum of all groups.
        (false, amount(0, 0), amount(300, 1)),
    ];
    for (is_unique, others, at_most) in cases {
        let mut groups = AccountGroups::new(MAX);
        for number in 1..=3 {
            let changes = allocated(image(number), 100 * u64::from(number), Some(ImageEnd::Exit), others);
            groups.apply(changes, process);
            groups.complete(image(number), ImageEnd::Exit, |_| key("not asked"), |_| key("cc1"), is_unique);
        }
        let accounts: Vec<_> = groups.all().collect();
        let [(_, account)] = accounts.as_slice() else { panic!("{accounts:?}") };
        assert_eq!((account.counters.alloc, account.exit), (amount(600, 3), amount(600, 3)));
        assert_eq!(account.marks.unwrap().high, AmountBounds { at_least: amount(300, 1), at_most });
    }
}

#[test]
fn marks_of_an_unidentified_image_start_again_at_a_reset() {
    let mut groups = AccountGroups::new(MAX);
    groups.apply(allocated(image(1), 100, None, amount(0, 0)), |_, _| None);
    groups.apply(allocated(image(2), 700, Some(ImageEnd::Exit), amount(100, 1)), |_, _| None);
    groups.reset_marks();
    groups.finish(|_, _| key("all"));
    let (_, account) = groups.all().next().unwrap();
    let now = AmountBounds { at_least: amount(100, 1), at_most: amount(100, 1) };
    assert_eq!((account.live, account.exit, account.peak_at), (amount(100, 1), amount(700, 1), None));
    assert_eq!(account.marks, Some(MarkBounds { low: now, high: now }));
}

#[test]
fn groups_of_ended_images_are_used_again() {
    let process = |id, _| Some(AccountKey([KeyPart::Process(id)].into()));
    let mut groups = AccountGroups::new(MAX);
    for number in 0..500 {
        groups.apply(allocated(image(number), 10, Some(ImageEnd::Exit), amount(0, 0)), process);
        groups.complete(image(number), ImageEnd::Exit, |_| key("not asked"), |_| key("sh"), false);
    }
    assert_eq!((groups.groups.len(), groups.running.len(), groups.of_images.len()), (2, 0, 0));
    assert_eq!(groups.all().next().unwrap().1.counters.alloc, amount(5000, 500));
}

#[test]
fn groups_beyond_the_maximum_are_added_up() {
    let mut groups = AccountGroups::new(10);
    for number in 0..25 {
        // The ledger does not report the ends of these images.
        groups.apply(allocated(image(number), 10, None, amount(0, 0)), |id, _| Some(key(&format!("{id:?}"))));
        groups.complete(image(number), ImageEnd::Exit, |_| key("not asked"), AccountKey::clone, false);
    }
    assert_eq!((groups.number_of_groups(), groups.number_of_others(), groups.running.len()), (11, 15, 0));
    let accounts: BTreeMap<_, _> = groups.all().collect();
    let other = &accounts[&AccountKey::other(1)];
    assert_eq!((other.counters.alloc, other.exit, other.live), (amount(150, 15), amount(150, 15), amount(0, 0)));
    // The maximum is a tenth higher for the final keys of ended processes.
    let process = |id, _| Some(AccountKey([KeyPart::Process(id)].into()));
    for number in 30..34 {
        groups.apply(allocated(image(number), 10, Some(ImageEnd::Exit), amount(0, 0)), process);
        let name = key(&format!("ended {number}"));
        groups.complete(image(number), ImageEnd::Exit, |_| key("not asked"), |_| name.clone(), true);
    }
    assert_eq!((groups.number_of_groups(), groups.number_of_others()), (12, 18));
}

#[test]
fn images_that_stay_unknown_are_added_up() {
    let mut groups = AccountGroups::new(MAX);
    for number in 0..3 {
        groups.apply(allocated(image(number), 10, Some(ImageEnd::Exit), amount(0, 0)), |_, _| None);
    }
    assert_eq!((groups.number_of_unidentified(), groups.number_of_groups()), (3, 0));
    groups.give_up_unidentified(1);
    assert_eq!((groups.number_of_unidentified(), groups.number_of_groups(), groups.number_of_others()), (0, 1, 3));
}

#[test]
fn groups_with_equal_names_are_one_row() {
    let process = |id, _| Some(AccountKey([KeyPart::Process(id)].into()));
    let mut groups = AccountGroups::new(MAX);
    groups.apply(allocated(image(1), 300, Some(ImageEnd::Exec), amount(0, 0)), process);
    groups.apply(allocated(image(2), 100, None, amount(0, 0)), process);
    groups.reset_marks();
    // Images of one process do not run at the same time, so their sum has exact marks too.
    let rows = groups.by_name(|_| vec![String::from("sh (7)")], true);
    let [(_, account)] = rows.as_slice() else { panic!("{rows:?}") };
    let now = AmountBounds { at_least: amount(100, 1), at_most: amount(100, 1) };
    assert_eq!(
        (account.counters.alloc, account.live, account.discarded),
        (amount(400, 2), amount(100, 1), amount(300, 1))
    );
    assert_eq!(account.marks, Some(MarkBounds { low: now, high: now }));
    assert_eq!(groups.by_name(|key| vec![format!("{key:?}")], false).len(), 2);
}

#[test]
fn group_and_account_have_the_documented_sizes() {
    // docs/design/0071-accounts.md
    assert_eq!([size_of::<Group>(), size_of::<Account>()], [192, 72]);
}
