//! Histories in memory within their limit.

use std::time::{Duration, SystemTime};

use memtrace_model::{Amount, EventClass, Part, Pid, Quantities, Quantity};

use super::*;
use crate::book::Book as _;
use crate::interval::{Change, TotalKey};

fn header() -> Header {
    Header {
        version: String::new(),
        host: String::new(),
        kernel: String::new(),
        arguments: Vec::new(),
        start: SystemTime::UNIX_EPOCH,
        interval: Duration::from_secs(1),
        classes: vec![EventClass::Heap],
        page_sample: 0,
        older: None,
    }
}

/// An interval of one second. Each of `stacks` stacks, from the stack `first` on, allocates two blocks of 16 bytes.
fn second(at: u64, first: u32, stacks: u32) -> Interval {
    let change = |path| {
        let live = Amount { bytes: Bytes(32), count: 2 };
        let key = TotalKey {
            image: ImageId { pid: Pid(7), ordinal: 0 },
            class: EventClass::Heap,
            path: PathNumber(path),
            end: StackEnd::Complete,
            part: Part::WHOLE,
        };
        let usage = Quantities::ZERO.with_amount(Quantity::LiveBytes, live).with_amount(Quantity::AllocBytes, live);
        Change { key, usage }
    };
    let changes = (first..first + stacks).map(change).collect();
    Interval { span: Duration::from_secs(at)..Duration::from_secs(at + 1), changes, ..Interval::default() }
}

#[test]
fn old_intervals_are_merged_at_the_limit() {
    let limit = Bytes(1 << 20);
    let mut book = MemoryBook::new(header(), limit);
    for at in 0..2000 {
        book.append(second(at, 1, 100));
        assert!(book.size() <= limit, "{at}: {}", book.size());
    }
    assert!(book.intervals().len() < 1000, "{}", book.intervals().len());
    assert_eq!(book.intervals().iter().map(|row| row.merged).sum::<u64>(), 2000);
    let totals = book.totals(Boundary::START, book.end()).unwrap();
    assert_eq!(totals.stacks.len(), 100);
    assert!(totals.stacks.iter().all(|stack| stack.usage.live().bytes == Bytes(32 * 2000)));
    let last = book.intervals().last().unwrap();
    assert_eq!(
        last.span,
        Duration::from_secs(1999)..Duration::from_secs(2000),
        "young intervals keep their resolution"
    );
}

#[test]
fn small_stacks_are_merged_if_intervals_make_too_little_room() {
    let limit = Bytes(1 << 20);
    let mut book = MemoryBook::new(header(), limit);
    for at in 0..100 {
        book.append(second(at, 1 + 2000 * at as u32, 2000));
        book.append(Interval { span: Duration::from_secs(at + 1)..Duration::from_secs(at + 1), ..second(at, 1, 1) });
        assert!(book.size() <= limit, "{at}: {}", book.size());
    }
    let totals = book.totals(Boundary::START, book.end()).unwrap();
    let live: u64 = totals.stacks.iter().map(|stack| stack.usage.live().bytes.0).sum();
    assert_eq!(live, 32 * (100 * 2000 + 100), "sums are exact");
    let merged: Vec<_> = totals.stacks.iter().filter(|stack| stack.key.end == StackEnd::Merged).collect();
    let [merged] = merged.as_slice() else { panic!("{merged:?}") };
    let stacks = totals.stacks.len() as u64 - 1 + merged.usage[Quantity::MergedStacks];
    assert_eq!(stacks, 100 * 2000);
    let largest = totals.stacks.iter().max_by_key(|stack| stack.usage.live().bytes).unwrap();
    assert!(largest.key.end == StackEnd::Merged || largest.usage.live().bytes > Bytes(32));
}
