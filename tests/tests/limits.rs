//! memtrace within its own limits: a memory cgroup, `--memory-limit`, open files, and targets within theirs. The trace matches
//! the victim's totals.

mod alone;

use std::collections::BTreeMap;
use std::fs;

use memtrace_tests::{MemoryCgroup, Report, Scratch, Trace, VictimTotals, breakpoints, poll, victim};

const FAILED: i32 = 1;
/// Exit code of a trace with allocators that had no probes for some time.
const INCOMPLETE: i32 = 20;
const MIB: u64 = 1 << 20;

/// Returns the start of a command line that runs a command in the cgroup.
fn inside(cgroup: &MemoryCgroup) -> Vec<String> {
    let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", cgroup.path().display());
    vec!["sh".into(), "-c".into(), script]
}

fn assert_traced(wrapper: &[&str], options: &[&str], note: &str) {
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).wrapped_in(wrapper).options(options).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    assert!(outcome.stderr.contains(note), "`{note}` is not in: {}", outcome.stderr);
    outcome.report().assert_equals(&expected);
}

fn assert_allocations(report: &Report, pid: u32, expected: &VictimTotals) {
    let entries = report.entries_of(pid);
    assert_eq!(entries.len(), 1, "{:#?}", report.processes);
    let (found, expected) = (&entries[0].totals, &expected.totals);
    assert_eq!((found.alloc_count, found.alloc_bytes), (expected.alloc_count, expected.alloc_bytes));
    assert_eq!((found.live_count, found.live_bytes), (expected.live_count, expected.live_bytes));
}

/// A breakpoint needs a copy of its page, and the cgroup has no memory for it.
#[test]
fn target_in_a_full_cgroup_gets_its_probes_later() {
    let (mut victim, mut starved) = (victim::start("exact"), victim::start("exact"));
    let cgroup = MemoryCgroup::with_memory_and_swap(0);
    cgroup.add_protected_process(starved.pid());
    let tracer = Trace::pids(&[victim.pid(), starved.pid()]).start();
    let probed = breakpoints::list(victim.pid());
    assert!(!probed.is_empty());
    assert_eq!(breakpoints::list(starved.pid()), [""; 0]);
    let of_victim = victim.work();
    cgroup.set_memory(1 << 30);
    poll::until(|| {
        let found = breakpoints::list(starved.pid());
        if found == probed { Ok(()) } else { Err(found) }
    });
    let of_starved = starved.work();
    let report = tracer.stop().report_with_code(INCOMPLETE);
    assert_allocations(&report, victim.pid(), &of_victim);
    assert_allocations(&report, starved.pid(), &of_starved);
    let notes = ["no probes yet", "1 set of probes waited"];
    assert!(notes.iter().all(|note| report.notes.iter().any(|found| found.contains(note))), "{:?}", report.notes);
    victim.finish();
    starved.finish();
}

#[test]
fn trace_in_a_low_memory_cgroup_matches() {
    let cgroup = MemoryCgroup::with_memory(64 * MIB);
    let wrapper = inside(&cgroup);
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    assert_traced(&wrapper, &[], "this memory cgroup leaves");
}

#[test]
fn trace_with_a_memory_limit_matches() {
    assert_traced(&[], &["--memory-limit", "64MiB"], "--memory-limit allows 64.00 MiB");
    assert_traced(&[], &["--memory-limit", "40MiB", "--shards", "2"], "the rings have 2.00 MiB each");
}

/// All pages of a mapping of a ring are resident, so a second mapping of the data would count twice. The limit leaves
/// all maps their full size.
#[test]
fn data_of_each_ring_is_mapped_once() {
    const RING: u64 = 512 << 10;
    const LARGEST_PAGE: u64 = 64 << 10;
    let mut victim = victim::start("exact");
    let options = ["--ring-size", "512KiB", "--shards", "2", "--memory-limit", "1GiB"];
    let mut tracer = Trace::victim(&victim).options(&options).start();
    let maps = fs::read_to_string(format!("/proc/{}/maps", tracer.process().pid())).unwrap();
    let size = |line: &str| {
        let (begin, end) = line.split_whitespace().next()?.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(begin, 16).ok()?)
    };
    let of_rings = maps.lines().filter(|line| line.contains(" r--s ") && line.contains("bpf-map"));
    let sizes: Vec<u64> = of_rings.filter_map(size).collect();
    // A page precedes the data.
    let number_with = |data: u64| sizes.iter().filter(|&&size| size > data && size <= data + LARGEST_PAGE).count();
    assert_eq!((number_with(RING), number_with(2 * RING)), (2, 0), "{maps}");
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    outcome.report().assert_equals(&expected);
}

#[test]
fn required_memory_is_named() {
    let victim = victim::start("exact");
    let trace = Trace::victim(&victim).options(&["--memory-limit", "39MiB", "--shards", "2"]);
    trace.run().assert_refused(FAILED, &["needs 40.00 MiB", "--memory-limit allows 39.00 MiB", "--memory-limit 40MiB"]);
    let cgroup = MemoryCgroup::with_memory(32 * MIB);
    let wrapper = inside(&cgroup);
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    let trace = Trace::victim(&victim).wrapped_in(&wrapper).options(&["--shards", "2"]);
    trace.run().assert_refused(FAILED, &["needs 40.00 MiB", "its memory cgroup leaves", "in another one"]);
    let trace = Trace::victim(&victim).wrapped_in(&wrapper).options(&["--memory-limit", "1GiB"]);
    trace.run().assert_refused(FAILED, &["out of memory", "--memory-limit"]);
}

/// With this limit, the two maps of unwind rows have room for about 17 copies of perl: `readelf
/// --debug-dump=frames-interp` lists 29,000 rows.
#[test]
fn unwind_tables_of_ended_processes_make_room_for_others() {
    let scratch = Scratch::new();
    for number in 0..60 {
        fs::copy("/usr/bin/perl", scratch.path(&format!("perl{number}"))).unwrap();
    }
    let script =
        "for program in \"$0\"/perl*; do \"$program\" -e 'my @words = map { \"x\" x $_ } 1 .. 500' || exit; done";
    let trace = Trace::command(["sh".as_ref(), "-c".as_ref(), script.as_ref(), scratch.path("").as_os_str()]);
    let outcome = trace.options(&["--memory-limit", "40MiB", "--shards", "2", "--min-size", "8KiB"]).run();
    outcome.assert_code(0);
    let mut ends = BTreeMap::<_, u64>::new();
    for stack in outcome.report().stacks {
        *ends.entry(stack.content.end).or_default() += stack.totals.alloc_count;
    }
    assert_eq!(ends.get("no_table"), None, "{ends:?}");
    let complete = ends["complete"] as f64 / ends.values().sum::<u64>() as f64;
    // Without eviction, two thirds of the allocations would have no table. With this limit, few stacks can be copied,
    // and a stack without a copy is cut until the table of its executable is built. So a minimum size keeps the number
    // of stacks low.
    assert!(complete > 0.9, "{ends:?}");
}

#[test]
fn limit_of_open_files_is_raised_or_named() {
    assert_traced(&["prlimit", "--nofile=64:4096"], &[], "");
    let victim = victim::start("exact");
    let trace = Trace::victim(&victim).wrapped_in(&["prlimit", "--nofile=64:64"]);
    trace.run().assert_refused(FAILED, &["may not open more files", "about 512 open files", "ulimit"]);
}

/// The command keeps its own limit, although memtrace raises the limit for itself.
#[test]
fn command_keeps_its_limit_of_open_files() {
    let outcome = Trace::command(["sh", "-c", "ulimit -Sn"]).wrapped_in(&["prlimit", "--nofile=64:4096"]).run();
    outcome.assert_code(0);
    assert_eq!(outcome.stdout, "64");
}

#[test]
fn protected_memtrace_is_exempt_from_the_oom_killer_and_locked() {
    let mut victim = victim::start("exact");
    let mut tracer = Trace::victim(&victim).option("--protect").start();
    let file = |pid: u32, name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let pid = tracer.process().pid();
    // The tests may run without CAP_SYS_RESOURCE, or in a cgroup with a limit.
    let own = file(std::process::id(), "status");
    let capabilities = own.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    let may_set_score = u64::from_str_radix(capabilities, 16).unwrap() & 1 << 24 != 0;
    let score = file(pid, "oom_score_adj");
    assert_eq!(["-1000", "-999"].contains(&score.trim()), may_set_score, "{score}");
    let status = file(pid, "status");
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap().trim();
    assert_ne!(locked, "0 kB");
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    assert_eq!(outcome.stderr.contains("OOM killer"), !may_set_score, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("swapped"), "{}", outcome.stderr);
    outcome.report().assert_equals(&expected);
}

#[test]
fn commands_of_a_protected_memtrace_are_not_protected() {
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let script = "test \"$(cat /proc/self/oom_score_adj)\" = \"$0\"";
    let trace = Trace::command(["sh", "-c", script, own.trim()]).options(&["--protect", "--exit-code"]);
    trace.run().assert_code(0);
}

#[test]
fn denied_protection_is_a_warning() {
    let mut victim = victim::start("exact");
    let wrapper = ["setpriv", "--bounding-set=-sys_resource"];
    let tracer = Trace::victim(&victim).wrapped_in(&wrapper).option("--protect").start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    let warning = "warning: the OOM killer can choose memtrace: oom_score_adj needs CAP_SYS_RESOURCE";
    assert!(outcome.stderr.contains(warning), "{}", outcome.stderr);
    outcome.report().assert_equals(&expected);
}
