//! Tests of accounts over time in traces for Perfetto.

use std::time::Duration;

use harness::Scratch;
use memtrace_model::{
    AccountCounters, AccountInterval, AccountRow, AccountTotals, Amount, AmountBounds, Bytes, GroupBy, LossReason,
    Losses, MarkBounds,
};
use memtrace_report::AccountTrace;
use serde_json::{Value, json};

use crate::long::viewers::read_perfetto;

const SECOND: u64 = 1_000_000_000;

/// Returns totals. `alloc`, `live`: allocated and live bytes. `high`: upper bound of the high-water
/// mark.
fn totals(alloc: u64, live: u64, high: u64) -> AccountTotals {
    let amount = |bytes| Amount { bytes: Bytes(bytes), count: 1 };
    let bounds = |at_least, at_most| AmountBounds { at_least: amount(at_least), at_most: amount(at_most) };
    AccountTotals {
        counters: AccountCounters { alloc: amount(alloc), ..AccountCounters::default() },
        live: amount(live),
        marks: Some(MarkBounds { low: bounds(0, 0), high: bounds(live, high) }),
        ..AccountTotals::default()
    }
}

fn interval(second: u64, rows: &[(&[&str], AccountTotals)], total: Option<AccountTotals>) -> AccountInterval {
    let row = |(names, totals): &(&[&str], AccountTotals)| AccountRow {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        totals: *totals,
    };
    AccountInterval {
        span: Duration::from_secs(second)..Duration::from_secs(second + 1),
        rows: rows.iter().map(row).collect(),
        total,
        ..AccountInterval::default()
    }
}

fn read(keys: &[GroupBy], intervals: &[AccountInterval]) -> Value {
    let scratch = Scratch::new();
    let path = scratch.path("accounts.pftrace");
    let mut bytes = Vec::new();
    let mut trace = AccountTrace::start(&mut bytes, keys.to_vec().into()).expect("a vector takes everything");
    intervals.iter().for_each(|interval| trace.add(interval).expect("a vector takes everything"));
    trace.note("losses", Duration::from_secs(9), "left out: 3 accounts").expect("a vector takes everything");
    std::fs::write(&path, bytes).expect("the scratch directory is writable");
    read_perfetto(&path)
}

#[test]
fn perfetto_accounts_of_threads_are_below_their_process() {
    let worker: &[&str] = &["w\u{1b} (8) of server (7)", "parser"];
    let mut intervals = [
        interval(0, &[(worker, totals(1000, 600, 900))], Some(totals(1000, 600, 900))),
        interval(1, &[], None),
        interval(
            2,
            &[(worker, totals(1500, 700, 750)), (&["server (7)", "[no tag]"], totals(50, 50, 50))],
            Some(totals(1550, 750, 800)),
        ),
    ];
    intervals[1].marks = vec![(Duration::from_millis(1500), String::from("deploy"))];
    let mut losses = Losses::default();
    losses.add(LossReason::LedgerFull, 2);
    intervals[2].losses = losses;
    let read = read(&[GroupBy::Thread, GroupBy::Tag], &intervals);
    let server = &read["counters"]["server"];
    let name = server.as_object().and_then(|counters| counters.keys().find(|name| name.contains("parser: live")));
    let name = name.expect("there is a track").trim_end_matches(": live");
    assert!(name.ends_with(" (8), parser") && !name.contains('\u{1b}'), "{name}");
    let counter = |title: &str| &server[format!("{name}: {title}")];
    assert_eq!(counter("live"), &json!([[SECOND, 600], [3 * SECOND, 700]]));
    assert_eq!(counter("allocated per second"), &json!([[0, 1000], [SECOND, 0], [2 * SECOND, 500]]));
    assert_eq!(counter("high-water mark"), &json!([[0, 900], [SECOND, 600], [2 * SECOND, 750]]));
    assert_eq!(server["server (7), [no tag]: live"], json!([[3 * SECOND, 50]]));
    assert_eq!(read["counters"]["accounts"]["total: live"], json!([[SECOND, 600], [3 * SECOND, 750]]));
    let instants = read["instants"].as_array().expect("instants");
    assert_eq!(instants[0], json!([1_500_000_000, "marks", "deploy"]));
    let is_loss = |text: &str| text.starts_with("lost: 2 events (");
    assert!(instants[1][1] == "losses" && instants[1][2].as_str().is_some_and(is_loss), "{instants:?}");
    assert_eq!(instants[2], json!([9 * SECOND, "losses", "left out: 3 accounts"]));
}

#[test]
fn perfetto_accounts_without_process_have_one_track() {
    let [root, moved]: [&[&str]; 2] = [&["root"], &["sh [ended]"]];
    let mut start = interval(2, &[(root, totals(400, 100, 100))], Some(totals(400, 100, 100)));
    // The selected part of the recording begins here.
    start.span = Duration::from_secs(2)..Duration::from_secs(2);
    // The amounts of another account were moved to `moved`. They were not allocated in this interval.
    let next = interval(2, &[(root, totals(500, 200, 300)), (moved, totals(9000, 0, 0))], Some(totals(520, 200, 300)));
    let read = read(&[GroupBy::User], &[start, next]);
    let accounts = &read["counters"]["accounts"];
    assert_eq!(accounts["root: live"], json!([[2 * SECOND, 100], [3 * SECOND, 200]]));
    assert_eq!(accounts["root: allocated per second"], json!([[2 * SECOND, 100]]));
    assert_eq!(accounts["root: high-water mark"], json!([[2 * SECOND, 300]]));
    assert_eq!(accounts["sh [ended]: allocated per second"], json!([[2 * SECOND, 120]]));
}

#[test]
fn perfetto_accounts_of_processes_are_their_counters() {
    let both = [GroupBy::Process, GroupBy::Allocator];
    let glibc: &[&str] = &["server (7)", "glibc (libc.so.6)"];
    let of_both = read(&both, &[interval(0, &[(glibc, totals(10, 10, 10))], None)]);
    assert_eq!(of_both["counters"]["server"]["glibc (libc.so.6): live"], json!([[SECOND, 10]]));
    let of_process = read(
        &both[..1],
        &[interval(0, &[(&["server (7)"], totals(10, 10, 10)), (&["sh [ended]"], totals(1, 0, 1))], None)],
    );
    assert_eq!(of_process["counters"]["server"]["live"], json!([[SECOND, 10]]));
    assert_eq!(of_process["counters"]["sh [ended]"]["live"], json!([[SECOND, 0]]));
}
