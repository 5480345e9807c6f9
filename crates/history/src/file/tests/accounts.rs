//! Accounts in recordings.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::Scratch;
use memtrace_model::{
    AccountCounters, AccountNumber, AccountTotals, Amount, AmountBounds, Bytes, MarkBounds, Tick, Tid,
};
use proptest::prelude::*;

use super::sample_intervals::header;
use super::{SETTINGS, empty_store, store_or_keep, write};
use crate::*;

/// Numbers of an account: allocated bytes, live bytes, bounds of the water marks, tick of the peak.
type Numbers = (u64, u64, [u64; 4], Option<u32>);

fn totals((alloc, live, marks, peak_at): Numbers) -> AccountTotals {
    let amount = |bytes| Amount { bytes: Bytes(bytes), count: bytes / 3 };
    let bounds = |at_least, at_most| AmountBounds { at_least: amount(at_least), at_most: amount(at_most) };
    AccountTotals {
        counters: AccountCounters {
            alloc: amount(alloc),
            free: amount(alloc / 2),
            free_by_others: amount(alloc / 4),
            unmatched_frees: alloc / 5,
        },
        live: amount(live),
        exit: amount(live / 7),
        discarded: amount(live / 9),
        marks: Some(MarkBounds { low: bounds(marks[0], marks[1]), high: bounds(marks[2], marks[3]) }),
        peak_at: peak_at.map(Tick),
    }
}

fn accounts() -> impl Strategy<Value = Vec<RecordedAccount>> {
    let numbers = (any::<u64>(), 0..1000u64, prop::array::uniform4(0..100u64), prop::option::of(0..1000u32));
    prop::collection::btree_map(0..6u32, numbers, 0..6).prop_map(|accounts| {
        let account = |(number, numbers)| RecordedAccount { number: AccountNumber(number), totals: totals(numbers) };
        accounts.into_iter().map(account).collect()
    })
}

/// Returns the intervals of one second each, with these accounts.
fn intervals(all: Vec<Vec<RecordedAccount>>) -> Vec<Interval> {
    let interval = |(at, accounts): (u64, Vec<RecordedAccount>)| {
        let account_names = accounts.iter().map(|account| AccountNames {
            number: account.number,
            names: vec![format!("account {} at {at}", account.number.0), String::from("second")],
            // An account with a final name has no thread, as after the end of its thread.
            thread: (at % 2 == 0).then_some(Tid(account.number.0)),
        });
        let span = Duration::from_secs(at)..Duration::from_secs(at + 1);
        Interval { span, account_names: account_names.collect(), accounts, ..Interval::default() }
    };
    (0..).zip(all).map(interval).collect()
}

/// Returns the accounts at the second `to`, with the water marks since the second `from`, computed without the
/// database.
fn known(intervals: &[Interval], from: u64, to: u64) -> BTreeMap<AccountNumber, AccountTotals> {
    let mut known: BTreeMap<AccountNumber, AccountTotals> = BTreeMap::new();
    for (second, interval) in (1..=to).zip(intervals) {
        for &RecordedAccount { number, totals } in &interval.accounts {
            let live = AmountBounds { at_least: totals.live, at_most: totals.live };
            let at_live = AccountTotals { marks: Some(MarkBounds { low: live, high: live }), peak_at: None, ..totals };
            let first = if second <= from { at_live } else { totals };
            let next = known.get(&number).filter(|_| second > from).map_or(first, |known| known.followed_by(totals));
            known.insert(number, next);
        }
    }
    known
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn accounts_are_read_as_they_were_stored(all in prop::collection::vec(accounts(), 1..8), from in 0..8u64) {
        let directory = Scratch::in_memory();
        let path = directory.path("run.memtrace");
        let intervals = intervals(all);
        write(&path, &intervals);
        let recording = Recording::open(&path).unwrap();
        let at = |second| recording.boundary_at(Duration::from_secs(second));
        for to in 0..=intervals.len() as u64 {
            let from = from.min(to);
            prop_assert_eq!(recording.accounts(at(from), at(to)).unwrap(), known(&intervals, from, to));
        }
        let names: BTreeMap<_, _> = recording.account_names().unwrap().into_iter().map(|account| (account.number, account.names)).collect();
        let expected: BTreeMap<_, _> =
            intervals.iter().flat_map(|interval| &interval.account_names).map(|account| (account.number, account.names.clone())).collect();
        prop_assert_eq!(names, expected);
    }

    #[test]
    fn waiting_intervals_are_merged_with_their_marks(all in prop::collection::vec(accounts(), 2..8)) {
        let directory = Scratch::in_memory();
        let path = directory.path("run.memtrace");
        let intervals = intervals(all);
        let mut merged = intervals[0].clone();
        intervals[1..].iter().for_each(|interval| merged.merge(interval.clone()));
        write(&path, &[merged]);
        let recording = Recording::open(&path).unwrap();
        let accounts = recording.accounts(Boundary::START, recording.end()).unwrap();
        prop_assert_eq!(accounts, known(&intervals, 0, intervals.len() as u64));
    }
}

#[test]
fn old_intervals_are_merged_with_their_marks() {
    const SECONDS: u64 = 400;
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let limit = Bytes(1 << 20);
    let account = |second: u64, number: u32| {
        let wave = (second * 7919 + u64::from(number) * 104_729) % 10_007;
        let numbers = (second * 10, wave, [wave / 2, wave / 2 + 1, wave * 2, wave * 3], Some(second as u32));
        RecordedAccount { number: AccountNumber(number), totals: totals(numbers) }
    };
    // Each account changes in every third second.
    let accounts_of = |second: u64| {
        (0..200)
            .filter(move |number| (second + u64::from(*number)).is_multiple_of(3))
            .map(move |number| account(second, number))
    };
    let intervals = intervals((0..SECONDS).map(|second| accounts_of(second).collect()).collect());
    let mut store = empty_store(&path, limit);
    let mut waiting = None;
    for interval in &intervals {
        store_or_keep(&mut store, &mut waiting, interval.clone());
    }
    assert_eq!(waiting, None);
    store.finish().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() <= limit.0);
    let recording = Recording::open(&path).unwrap();
    let remaining = recording.intervals().len() as u64;
    assert!(remaining < SECONDS, "{remaining} intervals");
    let middle = recording.intervals()[recording.intervals().len() / 2].end();
    for interval in recording.intervals() {
        let (to, seconds) = (interval.end(), interval.end().at().as_secs());
        assert_eq!(recording.accounts(Boundary::START, to).unwrap(), known(&intervals, 0, seconds), "at {seconds} s");
        if middle < to {
            let from = middle.at().as_secs();
            assert_eq!(recording.accounts(middle, to).unwrap(), known(&intervals, from, seconds));
        }
    }
}

#[test]
fn recordings_without_tables_of_accounts_have_none() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let writer = Writer::create(&path, &header(), SETTINGS).unwrap();
    intervals(vec![Vec::new()]).into_iter().for_each(|interval| writer.push(interval));
    assert_eq!(writer.finish().gaps, 0);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("DROP TABLE account; DROP TABLE account_interval").unwrap();
    drop(connection);
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.accounts(Boundary::START, recording.end()).unwrap(), BTreeMap::new());
    assert_eq!(recording.account_names().unwrap(), []);
}
