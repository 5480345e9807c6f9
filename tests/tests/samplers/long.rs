//! Coverage of the 95 % intervals. Each of the 2000 stacks of a victim is a run of its own: its samples do not depend
//! on the samples of other stacks.

#![expect(clippy::print_stdout, reason = "the tests print the measured shares")]

use memtrace_tests::Stack;

use super::*;

/// Ends of the interval of a stack without samples, in bytes. The upper end is ln 20 intervals of the sampler, as in reports: a
/// stack with more bytes has no sample in less than 5 of 100 cases.
const WITHOUT_SAMPLES: (u64, u64) = (0, INTERVAL * 29_957 / 10_000);

/// Returns the names of the victim's functions in a stack, or `None` if they are not there.
fn group(stack: &Stack) -> Option<String> {
    let names = stack.names();
    let named = |start: &str| names.iter().find(|name| name.starts_with(start)).copied();
    Some(format!("{} {}", named("outer_")?, named("inner_")?))
}

/// Asserts that 93 to 97 % of the intervals of the allocated and of the live bytes contain the true number.
fn assert_coverage(name: &str, samples: u64) {
    let arguments = groups(samples);
    let mut victim = Victim::start(&mut command(name, INTERVAL, &arguments.each_ref().map(String::as_str)));
    let tracer = Trace::victim(&victim).options(OWN).start();
    let expected = work(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    let mut stacks: BTreeMap<String, Vec<&Stack>> = BTreeMap::new();
    for stack in &report.stacks {
        if let Some(group) = group(stack) {
            stacks.entry(group).or_default().push(stack);
        }
    }
    let (mut runs, mut covered) = (0_u32, [0_u32; 2]);
    for (group, bytes) in &expected {
        let intervals = match stacks.get(group).map(Vec::as_slice) {
            None => [WITHOUT_SAMPLES; 2],
            Some([stack]) => {
                let numbers = &stack.content.totals;
                let ends = |low: Option<u64>, high: Option<u64>| low.zip(high).unwrap_or(WITHOUT_SAMPLES);
                let [live_low, live_high] =
                    [numbers.live_bytes_low, numbers.live_bytes_high].map(|end| end.map(i64::cast_unsigned));
                [ends(numbers.alloc_bytes_low, numbers.alloc_bytes_high), ends(live_low, live_high)]
            }
            // A path of the allocator that few blocks take. The interval of a sum is not in the report.
            Some(_) => continue,
        };
        runs += 1;
        for ((covered, (low, high)), bytes) in covered.iter_mut().zip(intervals).zip(bytes) {
            *covered += u32::from((low..=high).contains(bytes));
        }
    }
    assert_eq!(expected.len(), 2000);
    assert!(runs >= 1900, "{runs} of 2000 stacks have one path of the allocator");
    for covered in covered {
        let share = f64::from(covered) / f64::from(runs);
        println!("{name}, {samples} samples: {share:.4} of {runs} intervals contain the true number");
        assert!((0.93..=0.97).contains(&share), "{name}, {samples} samples: {share}");
    }
}

fn assert_all_covered(name: &str) {
    for samples in [5, 20, 100] {
        assert_coverage(name, samples);
    }
}

#[test]
fn intervals_of_jemalloc_cover_the_truth() {
    assert_all_covered("sampled.jemalloc");
}

#[test]
fn intervals_of_gperftools_cover_the_truth() {
    assert_all_covered("sampled.tcmalloc");
}

#[test]
fn intervals_of_otel_memory_probes_cover_the_truth() {
    assert_all_covered("sampled.otel_memory");
}

#[test]
fn intervals_of_ddheap_probes_cover_the_truth() {
    assert_all_covered("sampled.ddheap");
}
