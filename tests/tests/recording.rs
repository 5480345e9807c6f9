//! Recordings equal the victims' own counts, even while they are written.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use memtrace_tests::{
    MemoryCgroup, Scratch, Totals, Trace, Victim, breakpoints, killed_recording, mark, poll, recording_report, victim,
};
use rusqlite::{Connection, OpenFlags, Result};

fn open(recording: &Path) -> Result<Connection> {
    Connection::open_with_flags(recording, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Returns the sums of all changes.
fn sums(recording: &Path) -> Result<Totals> {
    sums_until(recording, i64::MAX)
}

/// Returns the sums of all changes up to the end of an interval.
fn sums_until(recording: &Path, interval: i64) -> Result<Totals> {
    let connection = open(recording)?;
    let sum = |numbers: &str| connection.query_one(numbers, [], |row| row.get(0));
    let change =
        |column: &str| sum(&format!("SELECT coalesce(sum({column}), 0) FROM change WHERE interval <= {interval}"));
    let detail = |name: &str| {
        sum(&format!(
            "SELECT coalesce(sum(value), 0) FROM detail JOIN quantity ON quantity.id = quantity
                WHERE name = '{name}' AND interval <= {interval}"
        ))
    };
    let [live_bytes, live_count] = [change("live_bytes")?, change("live_count")?];
    let [alloc_bytes, alloc_count] = [change("alloc_bytes")?, change("alloc_count")?];
    let [exit_bytes, exit_count] = [change("exit_bytes")?, change("exit_count")?];
    // Blocks that were held at exit, or discarded by exec, are not freed.
    let gone_bytes = exit_bytes + detail("discarded_bytes")?;
    let gone_count = exit_count + detail("discarded_count")?;
    let (free_bytes, free_count): (i64, i64) =
        (alloc_bytes - live_bytes - gone_bytes, alloc_count - live_count - gone_count);
    let [live_bytes, live_count, exit_bytes, exit_count, alloc_bytes, alloc_count, free_bytes, free_count] =
        [live_bytes, live_count, exit_bytes, exit_count, alloc_bytes, alloc_count, free_bytes, free_count]
            .map(|number: i64| u64::try_from(number).expect("no sum is negative"));
    Ok(Totals { live_bytes, live_count, exit_bytes, exit_count, alloc_bytes, alloc_count, free_bytes, free_count })
}

/// Waits until the recording has these totals.
fn wait_for(recording: &Path, expected: Totals) {
    poll::until(|| match sums(recording) {
        Ok(recorded) if recorded == expected => Ok(()),
        recorded => Err(format!("{recorded:?} instead of {expected:?}")),
    });
}

#[test]
fn recorded_changes_equal_the_counts_of_the_victim() {
    let scratch = Scratch::new();
    let recording = scratch.join("steady.memtrace");
    let mut victim = victim::start_with("steady", &["100", "5000"]);
    let trace = Trace::victim(&victim).option("--record").option(&recording).options(&["-i", "100ms"]);
    let tracer = trace.start();
    // Each step is in another interval than the step before.
    let mut steps = Vec::new();
    for _ in 0..3 {
        let expected = victim.work();
        wait_for(&recording, expected.totals);
        steps.push(expected.totals);
    }
    // The victim does one more step, which equals the second one, and exits.
    victim.finish();
    steps.push(steps[2] + (steps[1] - steps[0]));
    let report = tracer.wait().report();
    let last = steps[3].at_exit();
    assert_eq!((sums(&recording).unwrap(), report.totals), (last, last));

    let connection = open(&recording).unwrap();
    // Totals at the end of each interval with allocations.
    let mut boundaries = connection
        .prepare("SELECT sum(sum(alloc_bytes)) OVER (ORDER BY interval) FROM change GROUP BY interval HAVING sum(alloc_bytes) > 0")
        .unwrap();
    let boundaries: Vec<i64> = boundaries.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    // An interval can also end within a step.
    for step in &steps {
        assert!(boundaries.contains(&step.alloc_bytes.cast_signed()), "{boundaries:?} without {step:?}");
    }
    let pid: u32 = connection.query_one("SELECT pid FROM image WHERE end_kind = 'exit'", [], |row| row.get(0)).unwrap();
    assert_eq!(pid, report.processes[0].pid);
    // All blocks have the stack of one call in the victim. Their totals move to this stack when its frames arrive
    // through another ring.
    let stacks = "SELECT stack_end.name, object.path FROM change JOIN total ON total.id = total
        JOIN stack_end ON stack_end.id = \"end\" LEFT JOIN path ON path.id = total.path LEFT JOIN object ON object.id = object
        GROUP BY total.id HAVING sum(alloc_bytes) <> 0";
    let mut stacks = connection.prepare(stacks).unwrap();
    let stacks: Vec<(String, String)> =
        stacks.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    let victim = victim::path("steady").to_str().unwrap().to_owned();
    assert_eq!(stacks, [(String::from("complete"), victim)]);
    // The frames of the stack have the names of the report.
    let path = "WITH RECURSIVE stack (depth, path) AS (
            SELECT 0, total.path FROM change JOIN total ON total.id = total
                GROUP BY total.id HAVING sum(alloc_bytes) <> 0
            UNION ALL SELECT stack.depth + 1, path.callers FROM stack JOIN path ON path.id = stack.path
                WHERE path.callers <> 0)
        SELECT symbol.name FROM stack JOIN path ON path.id = stack.path
            JOIN symbol ON symbol.object = path.object AND symbol.offset = path.offset
        ORDER BY stack.depth DESC, symbol.depth";
    let mut names = connection.prepare(path).unwrap();
    let names: Vec<Option<String>> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let shown = report.stacks[0].frames.iter().map(|frame| frame.name.as_deref().map(String::from));
    assert_eq!(names, shown.collect::<Vec<_>>());
}

#[test]
fn recording_of_short_processes_equals_the_report() {
    let scratch = Scratch::new();
    let recording = scratch.join("short.memtrace");
    let script = "for i in 1 2 3 4 5; do ls -l /usr/bin > /dev/null; done";
    let trace = Trace::command(["sh", "-c", script]).option("--record").option(&recording);
    let report = trace.options(&["-i", "100ms"]).run().report();
    let connection = open(&recording).unwrap();
    // Each process is one image of `sh`, from its fork to its exec, and one image of `ls`.
    let images = "SELECT count(*) FROM image WHERE end_kind = 'exit' AND exe LIKE '%/ls'";
    assert_eq!(connection.query_one(images, [], |row| row.get::<_, u32>(0)), Ok(5));
    assert_eq!(sums(&recording).unwrap(), report.totals);
    let lost = "SELECT count(*) FROM (SELECT sum(alloc_count) AS sum FROM change JOIN total ON total.id = total
        JOIN stack_end ON stack_end.id = \"end\" WHERE stack_end.name = 'frames_lost' GROUP BY total.id) WHERE sum <> 0";
    assert_eq!(connection.query_one(lost, [], |row| row.get::<_, u32>(0)), Ok(0));
}

#[test]
fn recording_of_a_killed_memtrace_has_the_recorded_totals() {
    let scratch = Scratch::new();
    let recording = scratch.join("killed.memtrace");
    let (victim, totals) = killed_recording::record(&recording, wait_for);
    breakpoints::wait_until_removed(victim.pid());
    assert_eq!(sums(&recording), Ok(totals));
    let check: String = open(&recording).unwrap().query_one("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    victim.finish();
}

/// Another process in memtrace's cgroup takes all memory of the cgroup. The kernel kills memtrace first, and the other
/// process later.
#[test]
fn recording_of_memtrace_killed_for_its_memory_has_the_recorded_totals() {
    let scratch = Scratch::new();
    let recording = scratch.join("killed.memtrace");
    let cgroup = MemoryCgroup::with_memory(512 << 20);
    let enter = cgroup.enter();
    let mut victim = victim::start_with("steady", &["100"]);
    let trace = Trace::victim(&victim).option("-i").option("100ms").option("--record").option(&recording);
    let first = ["sh", "-c", "echo 1000 > /proc/self/oom_score_adj && exec \"$@\"", "sh"];
    let wrapper = [&enter.each_ref().map(String::as_str)[..], &first].concat();
    let tracer = trace.wrapped_in(&wrapper).start();
    let expected = victim.work();
    wait_for(&recording, expected.totals);
    assert_eq!(cgroup.oom_kills(), 0);
    let mut grows = Command::new(&enter[0]);
    grows.args(&enter[1..]).args(["tail", "/dev/zero"]);
    let mut growing = grows.spawn().expect("sh is installed");
    let outcome = tracer.wait();
    let end = growing.wait().expect("it has ended");
    assert_eq!((outcome.code, end.signal()), (None, Some(libc::SIGKILL)), "{}", outcome.stderr);
    assert_eq!(cgroup.oom_kills(), 2);
    breakpoints::wait_until_removed(victim.pid());
    assert_eq!(sums(&recording), Ok(expected.totals));
    let check: String = open(&recording).unwrap().query_one("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let report = recording_report::read(&recording, &[]);
    assert_eq!(report.totals, expected.totals);
    assert!(report.notes.iter().any(|note| note.starts_with("the recording is not complete")), "{:?}", report.notes);
    victim.finish();
}

#[test]
fn totals_at_marks_equal_the_counts_of_the_victim() {
    let scratch = Scratch::new();
    let (recording, socket) = (scratch.join("marks.memtrace"), scratch.join("marks.sock"));
    let mut victim = victim::start_with("steady", &["100", "5000"]);
    // Only marks end an interval.
    let trace = Trace::victim(&victim).option("--record").option(&recording).options(&["-i", "1h"]);
    let mut tracer = trace.option("--socket").option(&socket).start();
    let mut expected = Vec::new();
    for stored in ["first", "step", "step#2"] {
        let totals = victim.work().totals;
        let text = stored.trim_end_matches("#2");
        let stdout = mark::set(&socket, text);
        assert!(stdout.starts_with(&format!("{stored} at ")), "{stdout}");
        assert_eq!(sums(&recording), Ok(totals), "the interval is stored when the mark is printed");
        expected.push((String::from(stored), totals));
    }
    let totals = victim.work().totals;
    tracer.process().signal(libc::SIGUSR2);
    assert!(tracer.process().wait_for_stderr_line("memtrace: mark SIGUSR2 at "));
    expected.push((String::from("SIGUSR2"), totals));
    victim.finish();
    let report = tracer.wait().report();
    assert!(!socket.exists());
    assert_eq!(sums(&recording), Ok(report.totals));
    let connection = open(&recording).unwrap();
    let mut marks = connection.prepare("SELECT text, interval FROM mark WHERE exact ORDER BY at_ns").unwrap();
    let marks = marks.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap);
    let marks: Vec<(String, Totals)> =
        marks.map(|(text, interval)| (text, sums_until(&recording, interval).unwrap())).collect();
    assert_eq!(marks, expected);
}

#[test]
fn each_entry_of_a_function_sets_a_mark() {
    let scratch = Scratch::new();
    let recording = scratch.join("entries.memtrace");
    let mut victim = victim::start_with("steady", &["100"]);
    let function = format!("{}:work", victim::path("steady").display());
    let trace = Trace::victim(&victim).option("--record").option(&recording).options(&["--mark-on", &function]);
    // This process runs the same function, but is not traced.
    let mut other = victim::start_with("steady", &["100"]);
    let tracer = trace.start();
    for _ in 0..4 {
        let _ = victim.work();
        let _ = other.work();
    }
    victim.finish();
    other.finish();
    let report = tracer.wait().report();
    let connection = open(&recording).unwrap();
    let mut marks = connection.prepare("SELECT text FROM mark ORDER BY epoch").unwrap();
    let marks: Vec<String> = marks.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    // Each call allocates ten blocks.
    let calls = report.totals.alloc_count / 10;
    assert!(calls >= 4, "{calls}");
    let text = |call: u64| if call == 1 { String::from("steady:work") } else { format!("steady:work#{call}") };
    assert_eq!(marks, (1..=calls).map(text).collect::<Vec<_>>());
}

#[test]
fn one_of_several_recordings_must_be_chosen() {
    let scratch = Scratch::new();
    let victims = [0, 1].map(|_| victim::start_with("steady", &["100"]));
    let recordings = [0, 1].map(|number| scratch.join(format!("{number}.memtrace")));
    let start = |(victim, recording)| Trace::victim(victim).option("--record").option(recording).start();
    let tracers: Vec<_> = victims.iter().zip(&recordings).map(start).collect();
    let (code, stdout, stderr) = mark::run(&["begin"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    for (mut tracer, recording) in tracers.into_iter().zip(&recordings) {
        let socket = format!("/run/memtrace/{}.sock", tracer.process().pid());
        assert!(stderr.contains(&socket) && stderr.contains(recording.to_str().unwrap()), "{stderr}");
        assert_eq!(mark::run(&["--socket", &socket, "begin"]).0, Some(0));
        let _ = tracer.stop();
        let marks = "SELECT group_concat(text) FROM mark";
        let texts: String = open(recording).unwrap().query_one(marks, [], |row| row.get(0)).unwrap();
        assert_eq!(texts, "begin");
        assert_eq!(mark::run(&["--socket", &socket, "end"]).0, Some(3), "it has ended");
    }
    victims.into_iter().for_each(Victim::finish);
}

#[test]
fn samples_equal_the_kernels_counters() {
    let scratch = Scratch::new();
    let recording = scratch.join("samples.memtrace");
    let mut victim = victim::start_with("steady", &["1000000"]);
    let trace = Trace::victim(&victim).option("--record").option(&recording).options(&["-i", "100ms"]);
    let tracer = trace.start();
    let _ = victim.work();
    // The victim waits for the next step, so its memory does not change.
    let status = std::fs::read_to_string(format!("/proc/{}/status", victim.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kibibytes: i64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    let last = "SELECT value FROM sampled WHERE subject = 'process' AND pid = ? AND name = 'rss_anon_bytes'
        ORDER BY interval DESC LIMIT 1";
    poll::until(|| match open(&recording).unwrap().query_one(last, [victim.pid()], |row| row.get::<_, i64>(0)) {
        Ok(value) if value == kibibytes * 1024 => Ok(()),
        value => Err(format!("{value:?} instead of {kibibytes} KiB")),
    });
    let _ = tracer.stop();
    victim.finish();
    let connection = open(&recording).unwrap();
    let count = |subject: &str, name: &str| {
        let sql = "SELECT count(*) FROM sampled WHERE subject = ? AND name = ? AND value > 0";
        connection.query_one(sql, [subject, name], |row| row.get::<_, u32>(0)).unwrap()
    };
    assert_eq!(count("machine", "meminfo.MemTotal_bytes"), 1, "it does not change");
    for name in ["minor_faults", "cpu_ns"] {
        assert!(count("process", name) > 0, "{name}");
    }
    assert!(count("memtrace", "cpu_ns") > 1 && count("memtrace", "recording_bytes") > 0);
    let paths = "SELECT count(*) FROM counter JOIN fact ON topic = 'cgroup_path' AND item = cgroup_id
        WHERE subject = 'cgroup' AND name = 'usage_bytes'";
    let cgroups = "SELECT count(*) FROM counter WHERE subject = 'cgroup' AND name = 'usage_bytes'";
    let number = |sql: &str| connection.query_one(sql, [], |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!(number(paths), number(cgroups));
}
