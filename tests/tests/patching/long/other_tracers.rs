//! Other tracers that come and go while processes are patched.

use memtrace_tests::patch_zoo::{self, Target as ZooTarget};
use memtrace_tests::uprobe::Uprobe;

use super::{FIRST, cycles_of};
use crate::patching::*;

/// Number of times that the uprobes are placed and removed.
const PLACED: u64 = 1000;

/// Number of exact traces of the machine meanwhile.
const EXACT: u64 = 10;

#[test]
fn uprobes_and_exact_traces_leave_patched_processes_alone() {
    let mut zoo = patch_zoo::victims();
    let options = ["--sample-interval", "4MiB", "--allow-patching"];
    let sampled = Trace::pids(&patch_zoo::pids(&zoo)).options(&options).wrapped_in(FIRST).start();
    let texts: Vec<_> = zoo.iter().map(|target| (patches(target.pid()), Text::of(target.pid()))).collect();
    let files = ["libc.so.6", JEMALLOC].map(|name| {
        let path = zoo.iter().find_map(|target| mapped(target.pid(), name));
        path.unwrap_or_else(|| panic!("no target has mapped {name}"))
    });
    let placed = cycles_of(PLACED);
    for round in 0..placed {
        // As bpftrace without a PID: in all processes.
        let probes = files.each_ref().map(|file| Uprobe::at_entries(file, &["malloc", "free"], None));
        if round % (placed / EXACT).max(1) == 0 {
            let exact = Trace::system_wide().options(&["--ring-size", "64MiB", "--max-depth", "0"]).start();
            patch_zoo::assert_progress(&mut zoo);
            // The targets allocate faster than events can be read.
            let outcome = exact.stop();
            assert!(matches!(outcome.code, Some(0 | LOST)), "{:?}: {}", outcome.code, outcome.stderr);
        }
        drop(probes);
        if round % 50 == 0 {
            patch_zoo::assert_progress(&mut zoo);
        }
    }
    for (target, (sites, text)) in zoo.iter().zip(&texts) {
        assert_eq!(&patches(target.pid()), sites, "{}", target.name());
        Text::of(target.pid()).assert_same(text);
    }
    sampled.stop().report().assert_consistent();
    zoo.iter().for_each(ZooTarget::assert_restored);
    patch_zoo::assert_progress(&mut zoo);
}
