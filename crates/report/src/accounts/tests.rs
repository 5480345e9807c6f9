//! Tests of the formats of accounts.

use std::time::Duration;

use memtrace_model::{
    AccountCounters, AccountRow, AccountTotals, Amount, AmountBounds, Bytes, GroupBy, LossReason, MarkBounds, Tick,
};

use super::*;
use crate::json_lines::assert_round_trip;

const fn amount(bytes: u64, count: u64) -> Amount {
    Amount { bytes: Bytes(bytes), count }
}

fn table() -> AccountTable {
    let exact = |amount| AmountBounds { at_least: amount, at_most: amount };
    let counters = AccountCounters {
        alloc: amount(5 << 20, 5000),
        free: amount(1 << 20, 1000),
        free_by_others: amount(1 << 10, 7),
        unmatched_frees: 3,
    };
    let server = AccountTotals {
        counters,
        live: amount(4 << 20, 4000),
        marks: Some(MarkBounds { low: exact(amount(0, 0)), high: exact(amount(9 << 19, 4100)) }),
        peak_at: Some(Tick(2500)),
        ..AccountTotals::default()
    };
    let high = AmountBounds { at_least: amount(100, 2), at_most: amount(200, 3) };
    let others = AccountTotals {
        counters: AccountCounters { alloc: amount(300, 4), free: amount(250, 3), ..AccountCounters::default() },
        exit: amount(50, 1),
        marks: Some(MarkBounds { low: exact(amount(0, 0)), high }),
        ..AccountTotals::default()
    };
    let row = |user: &str, name: &str, totals| AccountRow { names: vec![user.to_owned(), name.to_owned()], totals };
    let mut table = AccountTable {
        keys: vec![GroupBy::User, GroupBy::Process].into(),
        rows: vec![row("www-data", "server (7)", server), row("root\x1b[2J", "sh, \"quoted\"", others)],
        total: server,
        start: Tick(1000),
        elapsed: Duration::from_secs(90),
        notes: vec![String::from("a note")],
        ..AccountTable::default()
    };
    table.losses.add(LossReason::LedgerFull, 2);
    table
}

fn written(format: Format) -> String {
    let mut bytes = Vec::new();
    write(format, &table(), 40, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn text_has_a_row_for_each_group_and_the_total() {
    let expected = "1:30  accounts of users and processes: 2

  USER      PROCESS        CURRENT  BLOCKS      HIGH  LOW  ALLOCATED     FREED  BY OTHERS  EXIT  UNMATCHED  PEAK AT
  www-data  server (7)    4.00 MiB   4,000  4.50 MiB  0 B   5.00 MiB  1.00 MiB   1.00 KiB     -          3  1.573 s
  root\u{fffd}[2J  sh, \"quoted\"       0 B       0    ~200 B  0 B      300 B     250 B          -  50 B          -        -
  total                   4.00 MiB   4,000  4.50 MiB  0 B   5.00 MiB  1.00 MiB   1.00 KiB     -          3  1.573 s

~ the mark is a bound: the order of changes in the accounts of a group is not known
lost: 2 events (allocations and pages not counted because the ledger is full; raise --memory-limit or, without one, --max-live)
note: a note
";
    assert_eq!(written(Format::Text), expected);
    let mut top = Vec::new();
    write(Format::Text, &table(), 1, &mut top).unwrap();
    let top = String::from_utf8(top).unwrap();
    assert!(top.starts_with("1:30  accounts of users and processes: 1 of 2\n") && !top.contains("quoted"), "{top}");
}

#[test]
fn csv_has_a_column_for_each_key_and_number() {
    let csv = written(Format::Csv);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines,
        [
            "user,process,current_bytes,current_count,high_bytes_at_least,high_count_at_least,high_bytes_at_most,\
             high_count_at_most,low_bytes_at_least,low_count_at_least,low_bytes_at_most,low_count_at_most,alloc_bytes,\
             alloc_count,free_bytes,free_count,free_by_others_bytes,free_by_others_count,exit_bytes,exit_count,\
             discarded_bytes,discarded_count,unmatched_frees,peak_at_ms",
            "www-data,server (7),4194304,4000,4718592,4100,4718592,4100,0,0,0,0,5242880,5000,1048576,1000,1024,7,0,0,0,0,3,\
             1572",
            "root\u{fffd}[2J,\"sh, \"\"quoted\"\"\",0,0,100,2,200,3,0,0,0,0,300,4,250,3,0,0,50,1,0,0,0,",
        ]
    );
}

#[test]
fn json_has_the_same_numbers() {
    let json = written(Format::Json);
    assert_round_trip::<memtrace_json::Accounts<'static>>(&json);
    let page: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(page["keys"], serde_json::json!(["user", "process"]));
    assert_eq!(page["losses"], serde_json::json!({ "ledger_full": 2 }));
    assert_eq!(page["accounts"][1]["names"][0], "root\x1b[2J");
    assert!(json.contains("root\\u001b[2J"), "control characters are escaped: {json}");
    assert_eq!(page["accounts"][1]["high_bytes_at_most"], 200);
    assert_eq!(page["accounts"][1]["peak_at_ms"], serde_json::Value::Null);
    assert_eq!(page["total"]["free_by_others_bytes"], 1024);
    assert!(write(Format::Svg, &table(), 40, &mut Vec::new()).is_err());
}

#[test]
fn names_of_control_groups_are_cut_on_the_left() {
    let row = |pod: &str| AccountRow {
        names: vec![
            format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice"),
            "nginx".repeat(9),
        ],
        totals: AccountTotals::default(),
    };
    let keys = vec![GroupBy::Cgroup, GroupBy::Comm].into();
    let table = AccountTable { keys, rows: vec![row("7a"), row("8b")], ..AccountTable::default() };
    let mut text = Vec::new();
    write(Format::Text, &table, 40, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    for pod in ["7a", "8b"] {
        assert!(text.contains(&format!("  …le.slice/kubepods-burstable-pod{pod}.slice  nginx")), "{text}");
    }
    assert!(text.contains("  nginxnginxnginxnginxnginxnginxnginxngin…  "), "{text}");
}

#[test]
fn names_in_csv_are_no_formulas() {
    let name = |name: &str| AccountRow { names: vec![name.to_owned()], totals: AccountTotals::default() };
    let rows = ["=1+1", "+a", "-b", "@c", "d=e"].map(name).into();
    let mut csv = Vec::new();
    write(
        Format::Csv,
        &AccountTable { keys: vec![GroupBy::Comm].into(), rows, ..AccountTable::default() },
        40,
        &mut csv,
    )
    .unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let names: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names, ["'=1+1", "'+a", "'-b", "'@c", "d=e"]);
}
