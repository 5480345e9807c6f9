//! Grouping by `--by`, and process metadata.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use memtrace_tests::{Totals, Trace, Victim, victim};

/// Returns the expected blocks and bytes of each of the eight threads of `victims/threads.c`.
fn expected_of_threads() -> Vec<(u64, u64)> {
    const THREADS: u64 = 8;
    const BLOCKS: u64 = 1500;
    let size = |thread: u64, nth: u64| 16 + (thread * 131 + nth * 17) % 3000;
    (0..THREADS).map(|thread| (BLOCKS, (0..BLOCKS).map(|nth| size(thread, nth)).sum())).collect()
}

/// Returns the totals of the blocks of the C library in `victims/recording.rs`: 99 blocks of 7 to 693 bytes. The victim
/// frees every third block.
fn expected_of_libc() -> Totals {
    let bytes = |nth: &mut dyn Iterator<Item = u64>| nth.map(|nth| nth * 7).sum::<u64>();
    let (alloc_bytes, free_bytes) = (bytes(&mut (1..100)), bytes(&mut (3..100).step_by(3)));
    Totals {
        live_bytes: alloc_bytes - free_bytes,
        live_count: 66,
        alloc_bytes,
        alloc_count: 99,
        free_bytes,
        free_count: 33,
        ..Totals::default()
    }
}

#[test]
fn by_allocator_groups_blocks_by_their_allocator() {
    let mut victim = victim::start("victim-rust-jemalloc");
    let tracer = Trace::victim(&victim).options(&["--by", "allocator"]).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&expected);
    let roots: BTreeMap<_, _> = report.roots.iter().map(|root| (root.name.as_str(), root.totals)).collect();
    let jemalloc = expected.totals - expected_of_libc();
    assert_eq!(
        roots,
        BTreeMap::from([("glibc (libc.so.6)", expected_of_libc()), ("jemalloc (victim-rust-jemalloc)", jemalloc)])
    );
}

#[test]
fn by_thread_groups_blocks_by_the_allocating_thread() {
    let mut victim = victim::start("threads");
    let tracer = Trace::victim(&victim).options(&["--by", "thread", "--shards", "4"]).start();
    let tasks: Vec<u32> = fs::read_dir(format!("/proc/{}/task", victim.pid()))
        .expect("the victim runs")
        .map(|task| task.expect("a task").file_name().to_str().and_then(|tid| tid.parse().ok()).expect("a number"))
        .filter(|tid| *tid != victim.pid())
        .collect();
    victim.work();
    let outcome = tracer.stop();
    victim.finish();

    let report = outcome.report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let mut allocated: Vec<_> =
        report.roots.iter().map(|root| (root.totals.alloc_count, root.totals.alloc_bytes)).collect();
    allocated.sort_unstable();
    let mut expected = expected_of_threads();
    expected.sort_unstable();
    assert_eq!(allocated, expected);

    // All threads have the name of the executable.
    let mut names: Vec<_> = tasks.iter().map(|tid| format!("threads ({tid})")).collect();
    names.sort_unstable();
    assert_eq!(report.roots.iter().map(|root| &root.name).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
    for stack in &report.stacks {
        let tid = stack.thread.expect("a thread");
        assert_eq!(report.roots[stack.root].name, format!("threads ({tid})"));
    }
    // The folded stacks contain only groups with live blocks.
    let mut live = BTreeMap::new();
    for (stack, value) in outcome.folded() {
        *live.entry(stack.split(';').next().expect("a folded stack starts with its group").to_owned()).or_default() +=
            value;
    }
    let roots = report.roots.iter().map(|root| (root.name.clone(), root.totals.live_bytes));
    assert_eq!(live, roots.filter(|(_, value)| *value > 0).collect::<BTreeMap<_, u64>>());
}

#[test]
fn ended_threads_keep_their_last_names() {
    let mut victim = victim::start("named_threads");
    let tracer = Trace::victim(&victim).options(&["--by", "thread"]).start();
    victim.process().write_line("");
    let expected: Vec<(String, u64)> = victim.read_json();
    assert!(expected.iter().all(|(name, _)| !name.ends_with("(0)")) && expected.len() == 4, "{expected:?}");
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    report.assert_consistent();
    // The blocks that the C library allocates to start a thread are left out.
    let mut found: Vec<_> = report
        .stacks_with_leaf("run")
        .map(|stack| (report.roots[stack.root].name.clone(), stack.totals.live_bytes))
        .collect();
    found.sort_by_key(|(_, bytes)| *bytes);
    let mut expected = expected;
    expected.sort_by_key(|(_, bytes)| *bytes);
    assert_eq!(found, expected);
}

#[test]
fn threads_are_not_separated_by_default() {
    let mut victim = victim::start("threads");
    let tracer = Trace::victim(&victim).start();
    victim.work();
    let report = tracer.stop().report();
    report.assert_consistent();
    let names: Vec<_> = report.roots.iter().map(|root| root.name.clone()).collect();
    assert_eq!(names, [format!("threads ({})", victim.pid())]);
    assert!(report.stacks.iter().all(|stack| stack.thread.is_none()));
    victim.finish();
}

#[test]
fn by_comm_merges_equal_names_and_by_process_does_not() {
    for (by, roots) in [("comm", 1), ("process", 2)] {
        let mut victims = [victim::start_with("steady", &["300"]), victim::start_with("steady", &["100"])];
        let pids: Vec<u32> = victims.iter().map(Victim::pid).collect();
        let tracer = Trace::pids(&pids).options(&["--by", by]).start();
        let expected: Vec<_> = victims.iter_mut().map(Victim::work).collect();
        let report = tracer.stop().report();
        report.assert_nothing_lost();
        report.assert_consistent();
        assert_eq!(report.roots.len(), roots, "{by}");
        assert_eq!(report.totals, expected.iter().map(|expected| expected.totals).sum());
        victims.into_iter().for_each(Victim::finish);
    }
}

#[test]
fn process_entry_has_user_cgroup_and_traced_time() {
    const NOBODY: u32 = 65534;
    let mut command = Command::new("cat");
    let mut other =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).uid(NOBODY).spawn().expect("cat can be started");
    let mut victim = Victim::start(&mut Command::new(victim::path("threads")));
    let tracer = Trace::pids(&[victim.pid(), other.id()]).start();
    let status = fs::read_to_string(format!("/proc/{}/status", victim.pid())).expect("the victim runs");
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", victim.pid())).expect("the victim runs");
    victim.work();
    let report = tracer.stop().report();
    other.kill().expect("cat can be killed");
    other.wait().expect("cat exits");

    let entry = |pid| report.processes.iter().find(|process| process.pid == pid).expect("every process is listed");
    let victim_entry = entry(victim.pid());
    assert!(status.lines().any(|line| line == "Uid:\t0\t0\t0\t0"), "{status}");
    assert_eq!((victim_entry.uid, victim_entry.user.as_deref()), (Some(0), Some("root")));
    let cgroup = victim_entry.cgroup.as_deref().expect("every process is in a control group");
    assert!(groups.lines().any(|line| line.splitn(3, ':').nth(2) == Some(cgroup)), "{cgroup} is none of {groups}");
    let other_entry = entry(other.id());
    assert_eq!((other_entry.uid, other_entry.user.as_deref()), (Some(NOBODY), Some("nobody")));
    assert_eq!((other_entry.threads, other_entry.inherited_frees), (Some(1), 0));

    let rate = victim_entry.allocs_per_s.expect("the trace took some time");
    let count = victim_entry.totals.alloc_count as f64;
    assert!((rate * report.duration_s - count).abs() < 1e-6 * count, "{victim_entry:?}");
    assert!(victim_entry.traced_s > 0.0 && (victim_entry.traced_s - report.duration_s).abs() < 0.5, "{victim_entry:?}");
    victim.finish();
}
