//! Views of recordings with the names of the Performance Schema, compared with the counters of victims.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use memtrace_tests::{Scratch, Totals, Trace, totals_by_tag, tracer, victim};
use rusqlite::{Connection, OpenFlags, params};

/// Numbers of a summary: allocated and freed blocks, allocated and freed bytes, blocks in use, and bytes in use.
type Numbers = [u64; 6];

/// Returns the rows of a summary by the text of its key.
fn summary(recording: &Path, view: &str, key: &str) -> BTreeMap<String, Numbers> {
    let connection = Connection::open_with_flags(recording, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a recording");
    let sql = format!(
        "SELECT CAST({key} AS TEXT), sum(COUNT_ALLOC), sum(COUNT_FREE), sum(SUM_NUMBER_OF_BYTES_ALLOC),
            sum(SUM_NUMBER_OF_BYTES_FREE), sum(CURRENT_COUNT_USED), sum(CURRENT_NUMBER_OF_BYTES_USED),
            min(HIGH_NUMBER_OF_BYTES_USED - CURRENT_NUMBER_OF_BYTES_USED), max(LOW_NUMBER_OF_BYTES_USED)
        FROM {view} WHERE {key} IS NOT NULL GROUP BY {key} HAVING sum(COUNT_ALLOC) > 0"
    );
    let mut statement = connection.prepare(&sql).expect("the view exists");
    let rows = statement.query_map(params![], |row| {
        assert!(row.get::<_, i64>(7)? >= 0, "the high-water mark is not below the current amount");
        assert_eq!(row.get::<_, i64>(8)?, 0, "each account was empty");
        let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let numbers = [number(1)?, number(2)?, number(3)?, number(4)?, number(5)?, number(6)?];
        Ok((row.get(0)?, numbers))
    });
    rows.expect("the view can be read").collect::<Result<_, _>>().expect("each row is complete")
}

fn numbers(totals: &Totals) -> Numbers {
    let Totals { alloc_count, free_count, alloc_bytes, free_bytes, live_count, live_bytes, .. } = *totals;
    [alloc_count, free_count, alloc_bytes, free_bytes, live_count, live_bytes]
}

#[test]
fn threads_have_the_counters_of_the_victim() {
    let scratch = Scratch::new();
    let recording = scratch.path("run.memtrace");
    let mut victim = victim::start("accounts");
    let tracer = Trace::victim(&victim).options(&["--by", "thread", "--record"]).option(&recording).start();
    victim.process().write_line("");
    let _: Vec<[u64; 11]> = victim.read_json();
    victim.process().write_line("");
    let counted: Vec<[u64; 11]> = victim.read_json();
    tracer.stop().assert_code(0);
    let (pid, threads) = (victim.pid(), &counted[..counted.len() - 1]);
    victim.finish();

    let of_thread = |[tid, alloc, allocs, free, frees, ..]: &[u64; 11]| {
        (tid.to_string(), [*allocs, *frees, *alloc, *free, allocs - frees, alloc - free])
    };
    let expected: BTreeMap<_, _> = threads.iter().map(of_thread).collect();
    assert_eq!(summary(&recording, "memory_summary_by_thread_by_event_name", "THREAD_ID"), expected);
    let all: Numbers = expected.values().fold([0; 6], |mut sum, numbers| {
        sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        sum
    });
    for (view, key) in [
        ("memory_summary_by_user_by_event_name", "USER"),
        ("memory_summary_by_host_by_event_name", "HOST"),
        ("memory_summary_by_account_by_event_name", "USER"),
    ] {
        assert_eq!(summary(&recording, view, key).into_values().collect::<Vec<_>>(), [all], "{view}");
    }
    let by_event = summary(&recording, "memory_summary_global_by_event_name", "EVENT_NAME");
    assert_eq!(by_event, BTreeMap::from([(String::from("memory/accounts/[no tag]"), all)]));

    let connection = Connection::open(&recording).expect("a recording");
    let sql = "SELECT group_concat(NAME || ' ' || PROCESSLIST_ID, ',') FROM threads WHERE THREAD_OS_ID = ?";
    let name: String =
        connection.query_row(sql, [threads[0][0].cast_signed()], |row| row.get(0)).expect("the thread has a name");
    assert_eq!(name, format!("worker-0 {pid}"));
    let sql = "SELECT count(*), sum(current_allocated), sum(total_allocated)
        FROM sys_memory_by_thread_by_current_bytes WHERE total_allocated > 0";
    let sums: [i64; 3] =
        connection.query_row(sql, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?])).expect("the view can be read");
    assert_eq!(sums.map(i64::cast_unsigned), [threads.len() as u64, all[5], all[2]]);
    let sql = "SELECT current_alloc, high_alloc >= current_alloc FROM sys_memory_global_by_current_bytes";
    let current: (i64, bool) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("the view can be read");
    assert_eq!(current, (all[5].cast_signed(), true));
}

#[test]
fn water_marks_are_those_of_the_recorded_accounts() {
    let scratch = Scratch::new();
    let (recording, socket) = (scratch.path("run.memtrace"), scratch.path("socket"));
    let mut victim = victim::start("accounts");
    let trace = Trace::victim(&victim).options(&["--by", "thread", "--max-depth", "0", "--record"]).option(&recording);
    let tracer = trace.option("--socket").option(&socket).accounts().start();
    victim.process().write_line("");
    let _: Vec<[u64; 11]> = victim.read_json();
    let reset = Command::new(tracer::binary()).arg("reset").arg("--socket").arg(&socket).output();
    assert!(reset.expect("memtrace starts").status.success());
    victim.process().write_line("");
    let counted: Vec<[u64; 11]> = victim.read_json();
    tracer.stop().assert_code(0);
    victim.finish();
    // The last row is the sum of all threads.
    let expected: BTreeMap<_, _> = counted[..counted.len() - 1]
        .iter()
        .map(|[tid, .., low, lows, high, highs]| (*tid, [*lows, *highs, *low, *high]))
        .collect();
    let connection = Connection::open(&recording).expect("a recording");
    let sql = "SELECT THREAD_ID, EVENT_NAME, LOW_COUNT_USED, HIGH_COUNT_USED, LOW_NUMBER_OF_BYTES_USED,
            HIGH_NUMBER_OF_BYTES_USED
        FROM memory_summary_by_thread_by_event_name WHERE COUNT_ALLOC > 0";
    let mut statement = connection.prepare(sql).expect("the view exists");
    let rows = statement.query_map([], |row| {
        assert_eq!(row.get::<_, String>(1)?, "memory/accounts/[no tag]");
        let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        Ok((number(0)?, [number(2)?, number(3)?, number(4)?, number(5)?]))
    });
    let marks: BTreeMap<_, _> =
        rows.expect("the view can be read").collect::<Result<_, _>>().expect("rows are complete");
    assert_eq!(marks, expected);
}

#[test]
fn events_have_the_tags_of_the_program() {
    assert_events(&[], |id| id.to_string());
}

#[test]
fn events_have_the_chosen_format_of_tags() {
    assert_events(&["--tag-format", "hex"], |id| format!("{id:#x}"));
}

/// Asserts that the events of a recorded victim have its totals by module. `name`: returns the name of the tag of a module.
fn assert_events(options: &[&str], name: fn(u64) -> String) {
    let scratch = Scratch::new();
    let recording = scratch.path("run.memtrace");
    let mut victim = victim::start_with("modules", &["set", "5000"]);
    let trace = Trace::victim(&victim).options(&["--tag-from", "set=set_module(id=arg0)"]).options(options);
    let tracer = trace.option("--record").option(&recording).start();
    victim.process().write_line("");
    let expected: BTreeMap<u64, Totals> = victim.read_json();
    tracer.stop().assert_code(0);
    victim.finish();
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(&id, totals)| (format!("memory/modules/{}", name(id)), numbers(totals))).collect();
    assert_eq!(summary(&recording, "memory_summary_global_by_event_name", "EVENT_NAME"), expected);
}

#[test]
fn events_are_the_classes_of_mariadb() {
    let scratch = Scratch::new();
    let recording = scratch.path("run.memtrace");
    let options = ["--tag-from", "mariadb:class", "--record", recording.to_str().expect("the path is text")];
    let (expected, outcome) = totals_by_tag::traced("mariadb", &["class", "2000"], &options);
    outcome.assert_code(0);
    let event = |name: &str| match name.strip_prefix("memory/") {
        Some(_) => name.to_owned(),
        None => format!("memory/mariadb/{name}"),
    };
    let expected: BTreeMap<_, _> = expected.iter().map(|(name, totals)| (event(name), numbers(totals))).collect();
    assert_eq!(summary(&recording, "memory_summary_global_by_event_name", "EVENT_NAME"), expected);
}
