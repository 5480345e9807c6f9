//! Recordings of many short processes. Their stacks are recorded as the stacks of their group.

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::Path;
use std::process::Command;

use memtrace_tests::{Report, Scratch, Stack, Totals, Trace, VictimTotals, mark, poll, recording_report, victim};
use rusqlite::{Connection, OpenFlags, Result};

/// Maximum number of processes until the stacks of a process are deferred. memtrace decides to defer stacks when the
/// first process has ended.
const MAX_PROCESSES: usize = 40;

/// Number of processes with deferred stacks.
const MEMBERS: usize = 4;

fn open(recording: &Path) -> Result<Connection> {
    Connection::open_with_flags(recording, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Returns the sums of all changes that satisfy `condition`, an SQL condition on the tables `change`, `total` and
/// `image`.
fn sums(recording: &Path, condition: &str) -> Result<Totals> {
    let connection = open(recording)?;
    let sql = format!(
        "SELECT coalesce(sum(live_bytes), 0), coalesce(sum(live_count), 0), coalesce(sum(exit_bytes), 0),
            coalesce(sum(exit_count), 0), coalesce(sum(alloc_bytes), 0), coalesce(sum(alloc_count), 0)
            FROM change JOIN total ON total.id = total JOIN image ON image.id = total.image WHERE {condition}"
    );
    connection.query_one(&sql, [], |row| {
        let number = |column| row.get::<_, i64>(column).map(|number| u64::try_from(number).expect("no negative sum"));
        let [live_bytes, live_count, exit_bytes] = [number(0)?, number(1)?, number(2)?];
        let [exit_count, alloc_bytes, alloc_count] = [number(3)?, number(4)?, number(5)?];
        let (free_bytes, free_count) = (alloc_bytes - live_bytes - exit_bytes, alloc_count - live_count - exit_count);
        Ok(Totals { live_bytes, live_count, exit_bytes, exit_count, alloc_bytes, alloc_count, free_bytes, free_count })
    })
}

fn count(recording: &Path, condition: &str) -> Result<usize> {
    let sql = format!("SELECT count(*) FROM image WHERE {condition}");
    open(recording)?.query_one(&sql, [], |row| Ok(row.get::<_, u32>(0)? as usize))
}

/// SQL condition for the images of the victim and their group.
const OF_VICTIM: &str = "exe LIKE '%/short_lived'";

/// Returns the sums of a report, and the group of the victims with its stacks. The times of the group are cleared,
/// because they can differ: a recording has the end times that the BPF programs record.
fn of_victims(report: &Report) -> impl PartialEq + Debug + use<> {
    let group = report.processes.iter().position(|process| process.comm == "short_lived").expect("a group");
    let of_group = |stack: &&Stack| stack.process == group;
    let of_stack = |stack: &Stack| (stack.frames.clone(), stack.end.clone(), stack.merged_stacks, stack.totals);
    let stacks: Vec<_> = report.stacks.iter().filter(of_group).map(of_stack).collect();
    let mut group = report.processes[group].clone();
    (group.content.traced_s, group.content.ended_s) = (0.0, None);
    (report.totals, report.losses.clone(), group, stacks)
}

#[test]
fn groups_of_short_processes_equal_the_victims_and_the_run() {
    let scratch = Scratch::new();
    let recording = scratch.join("groups.memtrace");
    let loops = format!("while read line && [ \"$line\" ]; do {}; done", victim::path("short_lived").display());
    let command: [OsString; 3] = ["sh".into(), "-c".into(), loops.into()];
    let trace = Trace::command(&command).options(&["-i", "100ms", "--keep-ended", "0", "--record"]);
    let mut tracer = trace.option(&recording).start();
    let mut expected: Vec<Totals> = Vec::new();
    while count(&recording, &format!("{OF_VICTIM} AND member_of IS NOT NULL")).unwrap_or(0) < MEMBERS {
        assert!(expected.len() < MAX_PROCESSES, "no stacks are deferred");
        tracer.process().write_line("next");
        let totals: VictimTotals = serde_json::from_str(&tracer.process().read_line()).expect("the totals of a victim");
        expected.push(totals.totals.at_exit());
        // The sums are complete at a boundary after the end of the victim, before its stacks are
        // recorded.
        let all: Totals = expected.iter().copied().sum();
        poll::until(|| match sums(&recording, OF_VICTIM) {
            Ok(sums) if sums == all => Ok(()),
            sums => Err(format!("{sums:?} instead of {all:?}")),
        });
    }
    tracer.process().write_line("");
    let outcome = tracer.wait();
    let connection = open(&recording).unwrap();
    let images = format!("SELECT id, member_of FROM image WHERE {OF_VICTIM} AND pid <> 0 ORDER BY start_ns");
    let mut images = connection.prepare(&images).unwrap();
    let images = images.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let images: Vec<(i64, Option<i64>)> = images.unwrap().map(Result::unwrap).collect();
    let mut of_members = Totals::default();
    for ((image, group), expected) in images.iter().zip(&expected) {
        assert_eq!(sums(&recording, &format!("image.id = {image}")), Ok(*expected), "{group:?}");
        if group.is_some() {
            of_members = [of_members, *expected].into_iter().sum();
        }
    }
    // All stacks of the members belong to their group, and the sums that stood for these stacks are gone.
    assert_eq!(sums(&recording, &format!("{OF_VICTIM} AND pid = 0 AND path <> 0")), Ok(of_members));
    let rest = format!("{OF_VICTIM} AND path = 0 AND (member_of IS NOT NULL OR pid = 0)");
    assert_eq!(sums(&recording, &rest), Ok(Totals::default()));
    let report = recording_report::read(&recording, &["--keep-ended", "0"]);
    // The shell ends with the run, and the report of the run lists it as a process of its own.
    assert_eq!(of_victims(&report), of_victims(&outcome.report()));
}

#[test]
fn mark_replaces_the_sum_of_a_running_process_by_its_stacks() {
    let scratch = Scratch::new();
    let (recording, socket) = (scratch.join("mark.memtrace"), scratch.join("mark.sock"));
    let [short, steady] = ["short_lived", "steady"].map(|name| victim::path(name).display().to_string());
    let script = format!("while read line && [ \"$line\" ]; do {short}; done; {steady} 100 5000");
    let command: [OsString; 3] = ["sh".into(), "-c".into(), script.into()];
    let trace = Trace::command(&command).options(&["-i", "100ms", "--keep-ended", "0", "--record"]).option(&recording);
    let mut tracer = trace.option("--socket").option(&socket).start();
    let mut number = 0;
    while count(&recording, &format!("{OF_VICTIM} AND member_of IS NOT NULL")).unwrap_or(0) == 0 {
        number += 1;
        assert!(number < MAX_PROCESSES, "no stacks are deferred");
        tracer.process().write_line("next");
        tracer.process().read_line();
        poll::until(|| match count(&recording, &format!("{OF_VICTIM} AND end_kind = 'exit'")) {
            Ok(ended) if ended == number => Ok(()),
            ended => Err(ended),
        });
    }
    tracer.process().write_line("");
    let ready = tracer.process().read_line();
    let pid = ready.strip_prefix("ready ").expect("the victim is ready");
    tracer.process().write_line("");
    let expected: VictimTotals = serde_json::from_str(&tracer.process().read_line()).expect("the totals of a victim");
    let of_victim = |paths: &str| sums(&recording, &format!("pid = {pid} AND exe LIKE '%/steady' AND {paths}"));
    poll::until(|| match of_victim("path = 0") {
        Ok(totals) if totals == expected.totals => Ok(()),
        totals => Err(totals),
    });
    assert_eq!(of_victim("path <> 0"), Ok(Totals::default()));
    mark::set(&socket, "now");
    assert_eq!([of_victim("path = 0"), of_victim("path <> 0")], [Ok(Totals::default()), Ok(expected.totals)]);
    // The victim would wait for the end of its input.
    assert!(Command::new("kill").arg(pid).status().expect("kill starts").success());
    drop(tracer.wait());
    assert_eq!(of_victim("path = 0"), Ok(Totals::default()));
}
