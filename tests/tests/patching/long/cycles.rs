//! Attach and detach under load. Each target checks its own results.

use std::time::{Duration, Instant};

use memtrace_tests::patch_zoo::{self, Target as ZooTarget};

use super::{CYCLES, FIRST, cycles_of};
use crate::patching::*;

/// Intervals in turn.
const INTERVALS: [&str; 4] = ["1MiB", "8MiB", "64MiB", "512MiB"];

/// Prints the median, the 99th percentile and the maximum of times in milliseconds.
fn print_times(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{name}: median {:.2} ms, 99 % {:.2} ms, worst {:.2} ms of {}", at(50), at(99), at(100), times.len());
}

#[test]
fn targets_under_load_survive_attach_and_detach() {
    let start = Instant::now();
    let mut zoo = patch_zoo::all();
    println!("{}", zoo.iter().map(ZooTarget::name).collect::<Vec<_>>().join(", "));
    let required = cycles_of(CYCLES);
    let (mut cycles, mut stops) = (0, Vec::new());
    for session in 0.. {
        if cycles >= required {
            break;
        }
        let options = ["--sample-interval", INTERVALS[session % INTERVALS.len()], "--allow-patching"];
        let trace = Trace::pids(&patch_zoo::pids(&zoo)).options(&options).options(&["--ring-size", "64MiB"]);
        let tracer = trace.wrapped_in(FIRST).start();
        for target in &zoo {
            // A process that waits for a child of vfork is patched later.
            assert!(wait_until_patched(target.pid()) >= 4, "session {session}: {}", target.name());
        }
        // In every second session, the targets work with their patches before the end.
        if session % 2 == 0 {
            patch_zoo::assert_progress(&mut zoo);
        }
        let report = tracer.stop().report();
        report.assert_consistent();
        zoo.iter().for_each(ZooTarget::assert_restored);
        patch_zoo::assert_progress(&mut zoo);
        let facts = zoo.iter().map(|target| patched(&report, target.pid()));
        stops.extend(facts.map(|facts| facts.stop_s * 1e3));
        cycles += zoo.len() as u64;
    }
    print_times("stops of all threads", stops);
    println!("{cycles} cycles in {:?}", Duration::from_secs(start.elapsed().as_secs()));
}
