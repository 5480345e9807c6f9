//! Tests of families of processes, of exact traces of the whole machine, and of the advice.

use std::collections::BTreeMap;

use memtrace_object::overlay::layout::OWNER_PID;

use super::*;

/// Asserts that an estimate is within four standard deviations. The variance of a sum of samples is at most the sum times the interval:
/// one of 16,000 sums is further off.
#[track_caller]
fn assert_sum(estimate: u64, sum: u64, interval: u64) {
    let deviations = estimate.abs_diff(sum) as f64 / (sum as f64 * interval as f64).sqrt();
    assert!(deviations < 4.0, "{estimate} is {deviations:.1} deviations from {sum}");
}

#[test]
fn family_with_the_stub_of_a_killed_trace_is_sampled() {
    const COMM: &str = "mt-workers";
    const INTERVAL: u64 = 64 << 10;
    let scratch = Scratch::new();
    let mut server = start_copy(&scratch, COMM, &["1000"]);
    let killed = server.trace(EACH);
    let functions = patches(server.pid());
    server.victim.process().write_line("workers 4");
    let line = server.victim.process().read_line();
    let workers: Vec<u32> = line.split(' ').skip(1).map(|pid| pid.parse().expect("a PID")).collect();
    let [busy, _, _, _] = workers[..] else { panic!("{line}") };
    // The first worker allocates from before the kill until all processes have a new session.
    server.victim.process().write_line("until");
    kill(killed);
    assert!(functions.len() >= 4 && workers.iter().all(|&pid| patches(pid) == functions), "{functions:?}");
    let options = ["--comm", COMM, "--sample-interval", "64KiB", "--allow-patching", "--ring-size", "64MiB"];
    let mut tracer = Trace::system_wide().options(&options).start();
    let memtrace = u64::from(tracer.process().pid());
    let mut family: Vec<u32> = [server.pid()].into_iter().chain(workers).collect();
    for &pid in &family {
        let stub = PatchStub::of(pid);
        poll::until(|| match stub.word(OWNER_PID) {
            owner if owner == memtrace => Ok(()),
            owner => Err(format!("process {pid} is sampled by {owner}")),
        });
    }
    server.victim.process().write_line("stacks 1048576");
    let before = server.victim.read_totals();
    let books: BTreeMap<String, [u64; 2]> = server.victim.read_json();
    server.victim.process().write_line("release");
    assert_eq!(server.victim.process().read_line(), "{}");
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let mut pids: Vec<u32> = report.content.patched_processes.iter().map(|process| process.pid).collect();
    pids.sort_unstable();
    family.sort_unstable();
    assert_eq!(pids, family);
    let allocated: u64 = books.values().map(|[allocated, _]| allocated).sum();
    let sampled: u64 = books.keys().map(|function| of_leaf(&report, function).alloc_bytes).sum();
    assert_sum(sampled, allocated, INTERVAL);
    // With samples of the earlier session, blocks would be live for ever: the new session empties its table.
    let numbers = only_entry(&report, busy).totals;
    assert_eq!((numbers.live_bytes, numbers.live_count), (0, 0));
    let facts = patched(&report, busy);
    let since_patch = facts.allocated_bytes.filter(|_| facts.exact).expect("the worker has one thread, which waits");
    assert!((allocated..=allocated + before.totals.alloc_bytes).contains(&since_patch), "{since_patch}, {before:?}");
    assert_sum(numbers.alloc_bytes, since_patch, INTERVAL);
    for &pid in &family {
        assert!(patches(pid).is_empty(), "process {pid} stays patched");
    }
    server.victim.process().write_line("end");
    assert_eq!(server.victim.process().read_line(), "{}");
    server.finish();
}

#[test]
fn exact_trace_of_the_machine_leaves_patches_alone() {
    let mut target = Target::steps();
    let pid = target.pid();
    let sampled = target.trace(EACH);
    let functions = patches(pid);
    let machine = Trace::system_wide().option("--ring-size").option("64MiB").start();
    let expected = target.victim.work();
    let report = machine.stop().report();
    only_entry(&report, pid).assert_equals(&expected);
    assert_eq!(patches(pid), functions);
    // Its probes are removed.
    let expected = target.victim.work();
    sampled.stop().report().assert_equals(&expected);
    target.finish();
}

#[test]
fn exact_trace_of_the_machine_is_no_obstacle() {
    let mut target = Target::steps();
    let pid = target.pid();
    let machine = Trace::system_wide().option("--ring-size").option("64MiB").start();
    let sampled = target.trace(EACH);
    let expected = target.victim.work();
    let report = sampled.stop().report();
    report.assert_equals(&expected);
    let after = target.victim.work();
    let report = machine.stop().report();
    only_entry(&report, pid).assert_equals(&after);
    target.finish();
}

#[test]
fn high_overhead_of_an_exact_trace_names_samples() {
    let mut victim = victim::start_with("flood", &["1000000000"]);
    victim.process().write_line("");
    let warned = Trace::victim(&victim).options(&["--duration", "100ms"]).run();
    assert!(warned.stderr.contains("more than 25 %"), "{}", warned.stderr);
    assert!(warned.stderr.contains("--allow-patching"), "{}", warned.stderr);
    // An option in use is not recommended. Below this limit, each call is traced.
    let options = ["--duration", "100ms", "--allow-patching", "--max-overhead", "1000000%"];
    let exact = Trace::victim(&victim).options(&options).run();
    assert!(exact.stderr.contains("more than 25 %"), "{}", exact.stderr);
    assert!(!exact.stderr.contains("--allow-patching"), "{}", exact.stderr);
    let sampled = Trace::victim(&victim).options(&["--duration", "100ms", "--allow-patching"]).run();
    sampled.assert_code(0);
    assert!(!sampled.stderr.contains("more than 25 %"), "{}", sampled.stderr);
    assert!(patches(victim.pid()).is_empty());
}
