//! Go programs are traced by the heap profile that their runtime keeps. The reference is what `runtime/pprof` writes in the
//! program itself at the same moment.

mod alone;
mod long;
mod views;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use memtrace_tests::go_profile::{self, Chain};
use memtrace_tests::{
    GoProfile, Report, Scratch, Totals, Trace, Victim, breakpoints, doctor, recording_report, tracer, victim,
};

const NO_SUCH_PROCESS: i32 = 3;
const NO_ALLOCATOR: i32 = 6;
const UNTRACEABLE: i32 = 8;

/// Sampling interval with some hundred samples, so that most stacks have several.
const INTERVAL: u64 = 16 << 10;

/// Returns a victim with its profiles in the directory `scratch`.
fn command(program: &Path, interval: u64, scratch: &Scratch) -> Command {
    let mut command = Command::new(program);
    command.arg(interval.to_string()).arg(&**scratch);
    command
}

/// Releases the victim from its barrier, and returns the number of its live blocks by function.
fn work(victim: &mut Victim) -> BTreeMap<String, u64> {
    victim.process().write_line("");
    victim.read_json()
}

/// Returns the profile that the victim has written with this name.
fn profile(scratch: &Scratch, name: &str) -> GoProfile {
    GoProfile::read(&scratch.join(name))
}

/// Returns the index of the entry of a process.
fn only_entry(report: &Report, pid: u32) -> usize {
    let mut entries = report.processes.iter().enumerate().filter(|(_, process)| process.pid == pid);
    let (index, _) = entries.next().expect("the process is in the report");
    assert!(entries.next().is_none(), "{:#?}", report.processes);
    index
}

/// Traces a program between its barriers, and compares its live blocks with its own profile.
fn assert_equals_own_profile(program: &Path) {
    let scratch = Scratch::new();
    let mut victim = Victim::start(&mut command(program, INTERVAL, &scratch));
    let mut tracer = Trace::victim(&victim).start_without_waiting();
    assert!(tracer.process().wait_for_stderr(|line| line.starts_with("attached") && line.contains(", 1 heap profile")));
    work(&mut victim);
    let report = tracer.stop().report();
    report.assert_consistent();
    report.assert_nothing_lost();
    let own = profile(&scratch, "after");
    assert_eq!(own.interval, INTERVAL);
    assert!(own.stacks.values().flatten().map(|samples| samples.live_blocks).sum::<u64>() > 150);
    own.assert_held(&report, only_entry(&report, victim.pid()));
    // The stacks of the program itself end at its main function.
    let in_main = |chain: &Chain| chain.last().is_some_and(|leaf| leaf.starts_with("main."));
    for chain in go_profile::reported(&report, 0).keys().filter(|chain| in_main(chain) && chain.len() < 20) {
        assert_eq!(chain[..2], ["runtime.main", "main.main"], "{chain:?}");
    }
    victim.finish();
}

#[test]
fn live_blocks_equal_the_own_profile() {
    assert_equals_own_profile(&victim::path("go_heap"));
}

#[test]
fn live_blocks_of_a_stripped_program_equal_its_own_profile() {
    assert_equals_own_profile(&victim::path("go_heap.stripped"));
}

#[test]
fn live_blocks_of_a_position_independent_program_equal_its_own_profile() {
    assert_equals_own_profile(&victim::path("go_heap.pie"));
}

/// Live blocks of a function: their number and their bytes.
fn of_leaf(report: &Report, name: &str) -> (u64, u64) {
    let totals: Totals = report.stacks_with_leaf(name).map(|stack| stack.totals).sum();
    (totals.live_count, totals.live_bytes)
}

#[test]
fn every_block_of_a_program_that_samples_all_is_counted() {
    let scratch = Scratch::new();
    let mut victim = Victim::start(&mut command(&victim::path("go_heap"), 1, &scratch));
    let tracer = Trace::victim(&victim).start();
    let blocks = work(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    let sizes = [("main.small", 1024), ("main.large", 8192), ("main.inlined", 4096), ("main.deep", 512)];
    let expected = [500, 300, 300, 300].map(Some);
    assert_eq!(sizes.map(|(name, _)| blocks.get(name).copied()), expected);
    for (name, size) in sizes {
        assert_eq!(of_leaf(&report, name), (blocks[name], blocks[name] * size), "{name}");
    }
    // All samples are live blocks, so nothing is estimated.
    let inlined = report.stacks_with_leaf("main.inlined").next().expect("a stack");
    assert_eq!(inlined.names()[inlined.frames.len() - 2], "main.caller");
    assert!(inlined.leaf().is_some_and(|leaf| leaf.inlined), "{:?}", inlined.leaf());
    // Blocks that were live before the trace and were freed during it.
    let small: Totals = report.stacks_with_leaf("main.small").map(|stack| stack.totals).sum();
    assert_eq!((small.alloc_count, small.free_count), (1000, 500));
    let temporary: Totals = report.stacks_with_leaf("main.temporary").map(|stack| stack.totals).sum();
    assert_eq!((temporary.alloc_count, temporary.free_count, temporary.live_count), (300, 300, 0));
    assert_eq!(temporary.alloc_bytes, 300 * 2048);
}

#[test]
fn sizes_are_filtered() {
    let scratch = Scratch::new();
    let mut victim = Victim::start(&mut command(&victim::path("go_heap"), 1, &scratch));
    let tracer = Trace::victim(&victim).options(&["--min-size", "4096", "--max-size", "8191"]).start();
    work(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    assert_eq!(["main.inlined", "main.small", "main.large"].map(|name| of_leaf(&report, name).0), [300, 0, 0]);
}

#[test]
fn last_reading_of_a_killed_program_stands() {
    let scratch = Scratch::new();
    let mut victim = Victim::start(&mut command(&victim::path("go_heap"), INTERVAL, &scratch));
    let pid = victim.pid();
    let mut tracer = Trace::victim(&victim).option("-vv").start();
    // The second reading follows after a second. By then, the first one counts.
    let is_read = |line: &str| line.contains(&format!("process {pid}: its heap profile was read"));
    for _ in 0..2 {
        assert!(tracer.process().wait_for_stderr(is_read), "the profile is not read");
    }
    victim.process().signal(libc::SIGKILL);
    let report = tracer.wait().report();
    report.assert_consistent();
    let entry = only_entry(&report, pid);
    assert_eq!(report.processes[entry].ended.as_deref(), Some("exit"));
    assert!(report.processes[entry].totals.exit_bytes > 0);
    profile(&scratch, "before").assert_held(&report, entry);
}

#[test]
fn program_that_dies_during_a_reading_is_traced_or_refused() {
    for moment in [0, 10, 20, 30, 40, 60, 80, 100, 150, 200, 400, 1000, 1010] {
        let scratch = Scratch::new();
        let mut victim = Victim::start(&mut command(&victim::path("go_heap"), 1, &scratch));
        let tracer = Trace::victim(&victim).start_without_waiting();
        // The delay waits for nothing: the test kills the program at different moments.
        thread::sleep(Duration::from_millis(moment));
        victim.process().signal(libc::SIGKILL);
        let outcome = tracer.wait();
        // Before the first reading, it may end as a process that could not be traced.
        let is_refused = matches!(outcome.code, Some(NO_SUCH_PROCESS | NO_ALLOCATOR | UNTRACEABLE));
        assert!(is_refused || outcome.code == Some(0), "{:?}: {}", outcome.code, outcome.stderr);
        if !is_refused {
            let report = outcome.report();
            report.assert_consistent();
            // The blocks of the reading before the end, or of none.
            let held: u64 = go_profile::reported(&report, 0).values().map(|numbers| numbers.samples).sum();
            let own = profile(&scratch, "before");
            let all: u64 = own.stacks.values().flatten().map(|samples| samples.live_blocks).sum();
            assert!(held == 0 || held == all, "{held} of {all}");
        }
    }
}

#[test]
fn program_after_exec_has_a_profile_of_its_own() {
    let scratch = Scratch::new();
    let mut first = command(&victim::path("go_heap"), INTERVAL, &scratch);
    let mut victim = Victim::start(first.arg("exec"));
    let pid = victim.pid();
    let mut tracer = Trace::victim(&victim).option("-vv").start();
    // The second reading follows after a second. By then, the first one counts.
    for _ in 0..2 {
        assert!(tracer.process().wait_for_stderr(|line| line.contains("its heap profile was read")), "it is not read");
    }
    work(&mut victim);
    // It executes itself, and prints that it is ready again.
    victim.process().write_line("");
    assert_eq!(victim.process().read_line(), format!("ready {pid}"));
    let report = tracer.stop().report();
    report.assert_consistent();
    let entries: Vec<_> = (0..report.processes.len()).filter(|&entry| report.processes[entry].pid == pid).collect();
    let [first, second] = entries[..] else { panic!("{:#?}", report.processes) };
    assert_eq!(report.processes[first].ended.as_deref(), Some("exec"));
    assert!(report.processes[first].discarded.count > 0, "its blocks ended with it");
    profile(&scratch, "before").assert_held(&report, second);
    victim.process().write_line("");
    work_is_done(victim);
}

/// Waits for the numbers of a victim that was released from its barrier, and for its end.
fn work_is_done(mut victim: Victim) {
    victim.process().read_line();
    victim.finish();
}

#[test]
fn blocks_of_go_and_of_c_are_groups_of_their_own() {
    let mut victim = Victim::start(Command::new(victim::path("go_cgo")).arg("1"));
    let tracer = Trace::victim(&victim).options(&["--by", "allocator"]).start();
    let blocks = work(&mut victim);
    let report = tracer.stop().report();
    report.assert_consistent();
    let of = |group: &str, leaf: &str| {
        let index = report.roots.iter().position(|root| root.name == group).expect("the group is listed");
        let stacks = report.stacks_with_leaf(leaf).filter(|stack| stack.root == index);
        let totals: Totals = stacks.map(|stack| stack.totals).sum();
        (totals.live_count, totals.live_bytes)
    };
    assert_eq!((blocks["go"], blocks["c"]), (200, 200));
    assert_eq!(of("go", "main.goBlock"), (200, 200 * 6144));
    assert_eq!(of("glibc (libc.so.6)", "c_block"), (200, 200 * 3000));
    assert_eq!(report.untraced.total.count, 0);
    victim.finish();
}

#[test]
fn child_of_a_fork_has_no_blocks_of_its_parent() {
    let mut victim = Victim::start(Command::new(victim::path("go_cgo")).args(["1", "fork"]));
    let tracer = Trace::pids(&[victim.pid()]).option("--children").start();
    let blocks = work(&mut victim);
    let report = tracer.stop().report();
    report.assert_consistent();
    let child = only_entry(&report, u32::try_from(blocks["child"]).expect("a PID"));
    let of_child = report.processes[child].totals;
    assert_eq!((of_child.alloc_count, of_child.free_count, of_child.live_count), (0, 0, 0));
    let parent = only_entry(&report, victim.pid());
    let of_parent = report.stacks_with_leaf("main.goBlock").filter(|stack| stack.process == parent);
    assert_eq!(of_parent.map(|stack| stack.totals).sum::<Totals>().live_count, 200);
    assert_eq!(report.untraced.total.count, 0, "the profile of the child is read");
    victim.finish();
}

#[test]
fn program_without_a_profile_is_refused_with_the_reason() {
    let victim = Victim::start(&mut Command::new(victim::path("go_plain")));
    let reason = ["neither an allocator nor a heap profile", "runtime/pprof"];
    Trace::victim(&victim).run().assert_refused(NO_ALLOCATOR, &reason);
    Trace::command([victim::path("go_plain")]).run().assert_refused(NO_ALLOCATOR, &reason);
}

#[test]
fn no_profile_is_read_with_exact_sources() {
    let scratch = Scratch::new();
    let victim = Victim::start(&mut command(&victim::path("go_heap"), INTERVAL, &scratch));
    let outcome = Trace::victim(&victim).options(&["--source", "exact"]).run();
    outcome.assert_refused(NO_ALLOCATOR, &["has no allocator that memtrace knows; examined: ", "made by Go"]);
}

#[test]
fn no_probe_is_attached_with_own_sources() {
    let scratch = Scratch::new();
    let mut of_go = Victim::start(&mut command(&victim::path("go_heap"), INTERVAL, &scratch));
    let of_c = victim::start_with("steady", &["100"]);
    let tracer = Trace::pids(&[of_go.pid(), of_c.pid()]).options(&["--source", "own"]).start();
    assert_eq!(breakpoints::list(of_c.pid()), [""; 0]);
    work(&mut of_go);
    let report = tracer.stop().report();
    profile(&scratch, "after").assert_held(&report, only_entry(&report, of_go.pid()));
    let untraced: Vec<_> = report.untraced.processes.iter().map(|process| (process.pid, &*process.reason)).collect();
    assert_eq!(untraced, [(of_c.pid(), "no_own_profile")]);
    of_go.finish();
}

#[test]
fn report_of_a_recording_equals_that_of_the_run() {
    let scratch = Scratch::new();
    let recording = scratch.join("run.memtrace");
    let mut victim = Victim::start(&mut command(&victim::path("go_heap"), INTERVAL, &scratch));
    let tracer = Trace::victim(&victim).option("--record").option(&recording).start();
    work(&mut victim);
    let run = tracer.stop().report();
    victim.finish();
    let recorded = recording_report::read(&recording, &[]);
    let own = profile(&scratch, "after");
    own.assert_held(&run, 0);
    own.assert_held(&recorded, 0);
    assert_eq!((recorded.totals, &recorded.roots), (run.totals, &run.roots));
}

#[test]
fn doctor_states_that_the_profile_can_be_read() {
    let scratch = Scratch::new();
    let victim = Victim::start(&mut command(&victim::path("go_heap"), INTERVAL, &scratch));
    let findings = |pid: u32| {
        let output = doctor::run_through(&[], &tracer::binary(), Some(pid));
        let [go] = output.findings_on("Go")[..] else { panic!("{output:#?}") };
        (output.code, go.verdict.clone(), go.detail.clone())
    };
    let (code, verdict, detail) = findings(victim.pid());
    assert_eq!((code, &*verdict), (Some(0), "ok"), "{detail}");
    let version = String::from_utf8(Command::new("go").arg("version").output().expect("go is installed").stdout);
    let version = version.expect("UTF-8").split_whitespace().nth(2).expect("go version go1.19.8").to_owned();
    let expected = format!("{version}: its own heap profile can be read: one sample each 16.00 KiB, ");
    assert!(detail.starts_with(&expected), "{detail}");
    let plain = Victim::start(&mut Command::new(victim::path("go_plain")));
    let (code, verdict, detail) = findings(plain.pid());
    assert_eq!((code, &*verdict), (Some(NO_ALLOCATOR), "warn"), "{detail}");
    assert!(detail.contains("does not import runtime/pprof"), "{detail}");
}

/// Returns the path of a copy of a victim.
fn copy(scratch: &Scratch, name: &str, copy: &str) -> PathBuf {
    scratch.copy(victim::path(name), copy)
}
