//! Tests of the table.

use super::*;

fn table(interval: &ThreadsInterval, sort: ThreadColumn, rows: usize, width: Option<usize>) -> String {
    let mut history = ThreadHistory::new(sort);
    history.add(interval);
    history.add(interval);
    written(|out| write_text(interval, &history, &ThreadTableOptions { sort, rows, width }, out))
}

/// Returns the lines of the threads, from the head of their table.
fn threads(table: &str) -> Vec<&str> {
    table.lines().skip_while(|line| !line.contains("  NAME")).collect()
}

const TABLE: &str = r#"1:30  1,204 threads of 2 processes in 2 s, sorted by net
CPU       25.0% user  6.2% system  5.0% iowait  62.5% idle
memory    12.00 GiB available of 32.00 GiB
pressure  1.5% cpu  0% memory  <0.1% io    disk  2.00M/s read  10.0M/s written
event     1:28  mark: =a�[2J,"b" <c>&'�
event     1:29  OOM kill of store (20)
lost      2 ledger_full (allocations and pages not counted because the ledger is full; raise --memory-limit or, without one, --max-live)

  PID  PROCESS  THREADS  STARTED  ENDED   CPU%   RSS  ANON   FILE  SHMEM  SWAP  FDS  HEAP      NOTE
    7  server     1,203        5      2  240.0  321M  300M  20.0M  1.00M    0B   64  bpf
   20  store          -        0      0   40.0     -     -      -      -     -    -  jemalloc  stale

  PID      TID  NAME                  S  ALLOC/s  FREE/s     NET  BLOCKS/s    CPU%  DELAY%  CSW/s  READ/s  WRITE/s  MINFLT/s  MAJFLT/s  HISTORY
    7        8  worker-1              R    3.00M   1.00M  +4.00M    40,000    80.0     2.0    513   64.0K    5.00M     1,200      2.00                    ██
   20       21  [empty name]          S    1.50M    512K  +2.00M         -    40.0     1.0    256   32.0K    2.50M       600      1.00
    7        7  server                S       0B      0B      0B         0     0.0     0.0      0      0B       0B         0         0                    ▁▁
    7        9  =a�[2J,"b" <c>&'�     S       0B   2.44K  -4.88K         0     0.0     0.0      0      0B       0B         0         0                    ▁▁
    7           [ended threads] (2)        1.50M    512K  +2.00M    20,000    40.0     1.0    256   32.0K    2.50M       600      1.00
    7           [others] (1,200)           4.50M   1.50M  +6.00M    60,000   120.0     3.0    770   96.0K    7.50M     1,800      3.00
"#;

#[test]
fn the_table_has_all_of_the_interval() {
    assert_eq!(table(&interval(), ThreadColumn::Net, 10, None), TABLE);
}

/// Returns the lines of events and losses.
fn notes(interval: &ThreadsInterval) -> Vec<String> {
    let table = table(interval, ThreadColumn::Net, 10, None);
    let is_note = |line: &&str| ["event ", "lost ", "note "].iter().any(|head| line.starts_with(head));
    table.lines().filter(is_note).map(String::from).collect()
}

#[test]
fn many_exits_have_one_line() {
    let named = |pid: u32| {
        let name = if pid < 5 { format!("once{pid}") } else { String::from(["cc1", "as"][pid as usize % 2]) };
        ProcessInterval { pid: Pid(pid), comm: name.into(), ..process(CounterSource::None, Vec::new()) }
    };
    let exits = |pids: std::ops::RangeInclusive<u32>| {
        let exit = |pid| ThreadsEvent { at: Duration::from_millis(500), kind: ThreadsEventKind::Exit(Pid(pid)) };
        let kill = ThreadsEvent { at: Duration::from_millis(700), kind: ThreadsEventKind::OomKill(Pid(6)) };
        ThreadsInterval {
            span: Duration::ZERO..Duration::from_secs(1),
            processes: (1..=20).map(named).collect(),
            events: pids.map(exit).chain([kill]).collect(),
            ..ThreadsInterval::default()
        }
    };
    let kill = "event     0:00  OOM kill of cc1 (6)";
    let each = ["event     0:00  exit of as (7)", "event     0:00  exit of cc1 (8)", "event     0:00  exit of as (9)"];
    assert_eq!(notes(&exits(7..=9)), [&each[..], &[kill]].concat());
    assert_eq!(notes(&exits(7..=10)), [kill, "event     0:01  exits of 4 processes: as ×2, cc1 ×2"]);
    // Process 21 has no known name. The names with fewer exits are counted.
    let many = "event     0:01  exits of 21 processes: as ×8, cc1 ×8, [unknown] ×1, once1 ×1 and 3 other names";
    assert_eq!(notes(&exits(1..=21)), [kill, many]);
}

#[test]
fn frees_of_old_blocks_are_not_lost() {
    let mut interval = ThreadsInterval { span: Duration::ZERO..Duration::from_secs(1), ..ThreadsInterval::default() };
    interval.losses.add(LossReason::SizeUnknown, 1234);
    let line = format!("note      1,234 size_unknown ({})", LossReason::SizeUnknown.explanation());
    assert_eq!(notes(&interval), [line]);
}

#[test]
fn lines_fit_in_any_width() {
    for width in 1..160 {
        let table = table(&interval(), ThreadColumn::Faults, 10, Some(width));
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= width), "{width}: {table}");
    }
    let narrow = table(&interval(), ThreadColumn::Faults, 10, Some(80));
    // The columns of the sort order are never removed, and the history has its newest values.
    let head = "  PID      TID  NAME                  S  ALLOC/s    CPU%  MINFLT/s  MAJFLT/s";
    let worker = "    7        8  worker-1              R    3.00M    80.0     1,200      2.00";
    assert_eq!(threads(&narrow)[..2], [head, worker]);
    let wide = table(&interval(), ThreadColumn::Alloc, 10, Some(93));
    let head = "  PID      TID  NAME                  S  ALLOC/s  FREE/s     NET    CPU%  DELAY%  HISTORY";
    let worker = "    7        8  worker-1              R    3.00M   1.00M  +4.00M    80.0     2.0           ██";
    assert_eq!(threads(&wide)[..2], [head, worker]);
}

#[test]
fn columns_without_room_are_named_once() {
    let table = |width| table(&interval(), ThreadColumn::Net, 10, Some(width)).replace("\n          ", " ");
    let note = |width| table(width).lines().filter(|line| line.starts_with("left out: ")).collect::<Vec<_>>().join("|");
    assert_eq!(note(160), "");
    let see = "(to see them: a wider terminal, or --format csv)";
    assert_eq!(note(140), format!("left out: MINFLT/s of threads {see}"));
    let expected = "left out: STARTED, ENDED, SHMEM, FDS of processes; \
                    BLOCKS/s, DELAY%, CSW/s, READ/s, WRITE/s, MINFLT/s, MAJFLT/s, HISTORY of threads";
    assert_eq!(note(80), format!("{expected} {see}"));
}

/// A narrow table has each number of the table without a maximum width as a whole, or leaves out its column.
#[test]
fn no_number_is_cut() {
    let words = |table: &str| table.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for sort in [ThreadColumn::Net, ThreadColumn::Faults, ThreadColumn::Name] {
        let all = words(&table(&interval(), sort, 10, None));
        for width in [45, 60, 80, 100, 140] {
            let table = table(&interval(), sort, 10, Some(width));
            let starts_number = |first: char| first.is_ascii_digit();
            let is_number = |word: &&String| word.trim_start_matches(['+', '-']).starts_with(starts_number);
            for word in words(&table).iter().filter(is_number) {
                assert!(all.contains(word), "{width}: {word} in {table}");
            }
            assert!(!table.contains("too narrow"), "{width}: {table}");
        }
    }
}

#[test]
fn names_in_wide_characters_keep_columns_aligned() {
    let mut interval = interval();
    interval.processes[0].comm = Comm::from("数据库");
    interval.processes[0].threads[0].comm = Comm::from("数据库线");
    let table = table(&interval, ThreadColumn::Net, 10, None);
    assert!(table.contains("\n    7  数据库     1,203        5      2  240.0  321M"), "{table}");
    assert!(table.contains("\n    7        8  数据库线              R    3.00M   1.00M  +4.00M"), "{table}");
}

#[test]
fn threads_beyond_the_rows_are_counted() {
    let table = table(&interval(), ThreadColumn::Cpu, 1, None);
    // The head, one thread, two sums, and a line for the other threads.
    assert_eq!(threads(&table).len(), 5, "{table}");
    assert!(table.contains("worker-1") && table.contains("[others] (1,200)"), "{table}");
    assert!(table.ends_with("\n  … and 3 more threads\n"), "{table}");
}

#[test]
fn unknown_numbers_are_dashes() {
    let unknown = ThreadsInterval {
        processes: vec![process(CounterSource::None, vec![thread(7, "a", &[])])],
        span: Duration::ZERO..Duration::from_millis(500),
        ..ThreadsInterval::default()
    };
    let expected = "0:00  1 thread of 1 process in 0.5 s, sorted by name
CPU       - user  - system  - iowait  - idle
memory    - available of -
pressure  - cpu  - memory  - io    disk  - read  - written

  PID  PROCESS  THREADS  STARTED  ENDED  CPU%  RSS  ANON  FILE  SHMEM  SWAP  FDS  HEAP
    7  server         -        0      0   0.0    -     -     -      -     -    -  none

      TID  NAME                  S  ALLOC/s  FREE/s  NET  BLOCKS/s    CPU%  DELAY%  CSW/s  READ/s  WRITE/s  MINFLT/s  MAJFLT/s  HISTORY
        7  a                     S        -       -    -         -     0.0     0.0      0      0B       0B         0         0
";
    assert_eq!(table(&unknown, ThreadColumn::Name, 10, None), expected);
}

#[test]
fn processes_without_lines_are_summed() {
    let of = |pid: u32| {
        let mut process = process(CounterSource::Bpf, Vec::new());
        (process.pid, process.comm) = (Pid(pid), Comm::from(format!("p{pid}")));
        process.ended = OtherThreads { count: 1, usage: usage(u64::from(pid)) };
        process.usage = process.ended.usage;
        process
    };
    let interval = ThreadsInterval { processes: (1..=10).map(of).collect(), ..interval() };
    let table = table(&interval, ThreadColumn::Alloc, 10, None);
    assert!(table.contains("\n   10  p10 ") && !table.contains("  p2 "), "{table}");
    assert!(table.contains("\n  … and 2 more processes\n"), "{table}");
    // Processes 1 and 2 allocate 3 MiB and 6 MiB in two seconds.
    let sum = threads(&table).into_iter().find(|line| line.contains("more  ")).unwrap();
    assert!(sum.contains("[ended threads] (2)") && sum.contains("  4.50M  "), "{table}");
}
