//! Tests of the formats of accounts.

use std::time::Duration;

use memtrace_model::{
    AccountColumn, AccountCounters, AccountRow, AccountTotals, Amount, AmountBounds, Bytes, GroupBy, ImageEnd,
    LossReason, MarkBounds, Pid, SampleSource, Sampler, Samplers, TagFunctionCalls, Tick, columns_of,
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
        tag_functions: vec![TagFunctionCalls { rule: "leave=f".into(), calls: 7, effective: 7, tested: None }],
        notes: vec![String::from("a note")],
        ..AccountTable::default()
    };
    table.losses.add(LossReason::LedgerFull, 2);
    table
}

const OPTIONS: AccountTextOptions = AccountTextOptions { sort: AccountColumn::Current, rows: 40, width: None };

fn written(format: Format) -> String {
    written_with(format, &table(), OPTIONS)
}

fn written_with(format: Format, table: &AccountTable, options: AccountTextOptions) -> String {
    let mut bytes = Vec::new();
    write(format, table, &options, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Returns the text in at most `width` columns of a terminal.
fn text_in(width: usize, table: &AccountTable) -> String {
    written_with(Format::Text, table, AccountTextOptions { width: Some(width), ..OPTIONS })
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
tags: leave=f had an effect in 7 calls
note: a note
";
    assert_eq!(written(Format::Text), expected);
    let top = written_with(Format::Text, &table(), AccountTextOptions { rows: 1, ..OPTIONS });
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
             discarded_bytes,discarded_count,unmatched_frees,peak_at_ms,samplers",
            "www-data,server (7),4194304,4000,4718592,4100,4718592,4100,0,0,0,0,5242880,5000,1048576,1000,1024,7,0,0,0,0,3,\
             1572,",
            "root\u{fffd}[2J,\"sh, \"\"quoted\"\"\",0,0,100,2,200,3,0,0,0,0,300,4,250,3,0,0,50,1,0,0,0,,",
        ]
    );
}

#[test]
fn csv_names_the_samplers_of_each_account() {
    let sampler = |source| Sampler { source, interval: Some(Bytes(512 << 10)) };
    let mut samplers = Samplers::default();
    samplers.add(Pid(7), sampler(SampleSource::Go));
    samplers.add(Pid(7), sampler(SampleSource::OtelMemory));
    samplers.add(Pid(8), sampler(SampleSource::Go));
    let column = |keys: &[GroupBy], rows: &[&[&str]], samplers: &Samplers| {
        let table = AccountTable { samplers: samplers.clone(), ..table_of(keys, rows) };
        let csv = written_with(Format::Csv, &table, OPTIONS);
        csv.lines().map(|line| line.rsplit(',').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let processes: [&[&str]; 4] = [&["server (7)"], &["server (8)"], &["sh (9)"], &["sh [ended]"]];
    let by_process = column(&[GroupBy::Process], &processes, &samplers);
    assert_eq!(by_process, ["samplers", "go otel_memory", "go", "", "go otel_memory"]);
    let threads: [&[&str]; 2] = [&["a (13) of server (8)"], &["a (15) of sh (9)"]];
    assert_eq!(column(&[GroupBy::Thread], &threads, &samplers), ["samplers", "go", ""]);
    // The account of a user can include processes with and without samplers.
    assert_eq!(column(&[GroupBy::User], &[&["root"]], &samplers), ["samplers", "go otel_memory"]);
    assert_eq!(column(&[GroupBy::User], &[&["root"]], &Samplers::default()), ["samplers", ""]);
    // After an exec, samplers of the old image belong to an unknown process, and count for each process without one.
    samplers.end_image(Pid(8), ImageEnd::Exec);
    assert_eq!(column(&[GroupBy::Process], &processes, &samplers)[2..4], ["go", "go"]);
}

#[test]
fn json_has_the_same_numbers() {
    let json = written(Format::Json);
    assert_round_trip::<memtrace_json::Accounts<'static>>(&json);
    let page: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(page["keys"], serde_json::json!(["user", "process"]));
    assert_eq!(page["losses"], serde_json::json!({ "ledger_full": 2 }));
    let function = serde_json::json!({ "rule": "leave=f", "calls": 7, "effective_calls": 7 });
    assert_eq!(page["tag_functions"], serde_json::json!([function]));
    assert_eq!(page["accounts"][1]["names"][0], "root\x1b[2J");
    assert!(json.contains("root\\u001b[2J"), "control characters are escaped: {json}");
    assert_eq!(page["accounts"][1]["high_bytes_at_most"], 200);
    assert_eq!(page["accounts"][1]["peak_at_ms"], serde_json::Value::Null);
    assert_eq!(page["total"]["free_by_others_bytes"], 1024);
    assert!(write(Format::Svg, &table(), &OPTIONS, &mut Vec::new()).is_err());
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
    let text = written_with(Format::Text, &table, OPTIONS);
    for pod in ["7a", "8b"] {
        assert!(text.contains(&format!("  …le.slice/kubepods-burstable-pod{pod}.slice  nginx")), "{text}");
    }
    assert!(text.contains("  nginxnginxnginxnginxnginxnginxnginxngin…  "), "{text}");
}

#[test]
fn names_in_csv_are_no_formulas() {
    let name = |name: &str| AccountRow { names: vec![name.to_owned()], totals: AccountTotals::default() };
    let rows = ["=1+1", "+a", "-b", "@c", "d=e"].map(name).into();
    let table = AccountTable { keys: vec![GroupBy::Comm].into(), rows, ..AccountTable::default() };
    let csv = written_with(Format::Csv, &table, OPTIONS);
    let names: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names, ["'=1+1", "'+a", "'-b", "'@c", "d=e"]);
}

/// Returns a table by these keys, with the same numbers in each row.
fn table_of(keys: &[GroupBy], rows: &[&[&str]]) -> AccountTable {
    let total = table().total;
    let row =
        |names: &&[&str]| AccountRow { names: names.iter().map(|&name| name.to_owned()).collect(), totals: total };
    AccountTable { keys: keys.to_vec().into(), rows: rows.iter().map(row).collect(), total, ..AccountTable::default() }
}

#[test]
fn narrow_tables_leave_out_the_least_important_columns() {
    let at_80 = "1:30  accounts of users and processes: 2

  USER      PROCESS        CURRENT  BLOCKS      HIGH  ALLOCATED     FREED  EXIT
  www-data  server (7)    4.00 MiB   4,000  4.50 MiB   5.00 MiB  1.00 MiB     -
  root\u{fffd}[2J  sh, \"quoted\"       0 B       0    ~200 B      300 B     250 B  50 B
  total                   4.00 MiB   4,000  4.50 MiB   5.00 MiB  1.00 MiB     -

left out: LOW, BY OTHERS, UNMATCHED, PEAK AT (to see them: a wider terminal, or
  --format csv)
~ the mark is a bound: the order of changes in the accounts of a group is not
  known
lost: 2 events (allocations and pages not counted because the ledger is full;
  raise --memory-limit or, without one, --max-live)
tags: leave=f had an effect in 7 calls
note: a note
";
    assert_eq!(text_in(80, &table()), at_80);
    let at_60 = "1:30  accounts of users and processes: 2

  USER      PROCESS        CURRENT  BLOCKS      HIGH  EXIT
  www-data  server (7)    4.00 MiB   4,000  4.50 MiB     -
  root\u{fffd}[2J  sh, \"quoted\"       0 B       0    ~200 B  50 B
  total                   4.00 MiB   4,000  4.50 MiB     -

left out: LOW, ALLOCATED, FREED, BY OTHERS, UNMATCHED, PEAK
  AT (to see them: a wider terminal, or --format csv)
~ the mark is a bound: the order of changes in the accounts
  of a group is not known
lost: 2 events (allocations and pages not counted because
  the ledger is full; raise --memory-limit or, without one,
  --max-live)
tags: leave=f had an effect in 7 calls
note: a note
";
    assert_eq!(text_in(60, &table()), at_60);
    let left_out = |width| {
        let text = text_in(width, &table());
        text.lines().filter_map(|line| line.strip_prefix("left out: ")).collect::<Vec<_>>().join("|")
    };
    assert_eq!(left_out(100), "LOW, UNMATCHED (to see them: a wider terminal, or --format csv)");
    assert_eq!(left_out(140), "");
    assert_eq!(text_in(140, &table()), written(Format::Text));
    let at_42 = text_in(42, &table());
    assert!(at_42.contains("\n  USER      PROCESS        CURRENT  BLOCKS\n"), "{at_42}");
    assert!(text_in(41, &table()).contains("\ntoo narrow: 42 columns are needed, and\n  there are 41\n"));
}

#[test]
fn no_number_is_cut() {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let all = words(&written(Format::Text));
    let is_number = |word: &&String| word.trim_start_matches('~').starts_with(|first: char| first.is_ascii_digit());
    for width in [42, 50, 60, 70, 80, 90, 100, 110, 120, 140] {
        let text = text_in(width, &table());
        assert!(text.lines().all(|line| columns_of(line) <= width), "{width}: {text}");
        for word in words(&text).iter().filter(is_number) {
            assert!(all.contains(word), "{width}: {word} in {text}");
        }
        for number in ["4.00 MiB", "4,000"] {
            assert_eq!(text.matches(&format!(" {number}")).count(), 2, "{width}: {text}");
        }
    }
}

#[test]
fn sort_column_is_never_left_out() {
    for (sort, head) in [(AccountColumn::PeakTime, "PEAK AT"), (AccountColumn::Low, "LOW")] {
        let text = written_with(Format::Text, &table(), AccountTextOptions { sort, width: Some(55), ..OPTIONS });
        let line = text.lines().find(|line| line.starts_with("  USER")).unwrap();
        assert!(line.contains(head), "{text}");
    }
}

#[test]
fn process_of_all_rows_is_in_the_title_only() {
    let threads: [&[&str]; 3] =
        [&["worker-1 (13) of server (12)"], &["server (12)"], &["[ended threads] of server (12)"]];
    let by_thread = table_of(&[GroupBy::Thread], &threads);
    let text = written_with(Format::Text, &by_thread, OPTIONS);
    assert!(text.starts_with("0:00  accounts of threads of server (12): 3\n\n  THREAD            CURRENT"), "{text}");
    for name in ["worker-1 (13)  ", "server (12)  ", "[ended threads]  ", "total  "] {
        assert!(text.contains(&format!("\n  {name}")), "{text}");
    }
    assert_eq!(text.matches(" of server (12)").count(), 1, "{text}");
    let csv = written_with(Format::Csv, &by_thread, OPTIONS);
    assert!(csv.contains("\nworker-1 (13) of server (12),"), "{csv}");

    let allocators: [&[&str]; 2] = [&["server (12)", "glibc"], &["server (12)", "jemalloc"]];
    let text = written_with(Format::Text, &table_of(&[GroupBy::Process, GroupBy::Allocator], &allocators), OPTIONS);
    assert!(text.starts_with("0:00  accounts of allocators of server (12): 2\n\n  ALLOCATOR"), "{text}");
    assert!(text.contains("\n  total ") && !text.contains("PROCESS"), "{text}");
    // The only name of a row remains.
    let text = written_with(Format::Text, &table_of(&[GroupBy::Process], &[&["server (12)"]]), OPTIONS);
    assert!(text.starts_with("0:00  accounts of processes: 1\n") && text.contains("\n  server (12) "), "{text}");
}

#[test]
fn threads_of_several_processes_keep_their_process() {
    let both: [&[&str]; 2] = [&["a (13) of server (12)"], &["a (15) of sh (14)"]];
    let text = written_with(Format::Text, &table_of(&[GroupBy::Thread], &both), OPTIONS);
    assert!(text.contains("\n  a (13) of server (12) ") && text.contains("\n  a (15) of sh (14) "), "{text}");
    // With a column for the process, the column of the thread need not repeat it.
    let rows: [&[&str]; 2] = [&["server (12)", "a (13) of server (12)"], &["sh (14)", "a (15) of sh (14)"]];
    let text = written_with(Format::Text, &table_of(&[GroupBy::Process, GroupBy::Thread], &rows), OPTIONS);
    assert!(text.contains("\n  server (12)  a (13)  ") && text.contains("\n  sh (14)      a (15)  "), "{text}");
    // A name that imitates another process, and sums of processes, keep all names complete.
    let hostile: [&[&str]; 2] = [&["a (1) of b (13) of server (12)"], &["server (12)"]];
    let text = written_with(Format::Text, &table_of(&[GroupBy::Thread], &hostile), OPTIONS);
    assert!(text.contains("threads: 2\n") && text.contains("\n  a (1) of b (13) of server (12) "), "{text}");
    let text = written_with(Format::Text, &table_of(&[GroupBy::Thread], &[&["sh [ended]"]]), OPTIONS);
    assert!(text.contains("accounts of threads: 1\n"), "{text}");
}

#[test]
fn names_in_wide_characters_keep_columns_aligned() {
    let table = table_of(&[GroupBy::User, GroupBy::Comm], &[&["www-data", "数据库"], &["root", "gro\u{308}ße"]]);
    let text = written_with(Format::Text, &table, OPTIONS);
    for row in ["www-data  数据库   4.00 MiB", "root      gro\u{308}ße    4.00 MiB", "total              4.00 MiB"]
    {
        assert!(text.contains(&format!("\n  {row}   4,000 ")), "{text}");
    }
}
