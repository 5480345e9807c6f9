//! Each tested release of Go, by a program that the test compiles.

mod services;

use memtrace_tests::go_releases::{VARIANTS, build, installed};
use memtrace_tests::pprof;

use super::*;

#[test]
fn live_blocks_of_all_releases_equal_their_own_profiles() {
    for (release, go) in installed() {
        let cache = Scratch::new();
        for variant in &VARIANTS {
            let program = cache.join(variant.name);
            build(&go, "go_heap.go", variant, &cache, &program);
            println!("Go {release}, {}", variant.name);
            assert_equals_own_profile(&program);
        }
    }
}

#[test]
fn live_blocks_equal_those_of_go_tool_pprof() {
    let scratch = Scratch::new();
    let program = victim::path("go_heap");
    let mut victim = Victim::start(&mut command(&program, INTERVAL, &scratch));
    let tracer = Trace::victim(&victim).start();
    work(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    let own = pprof::in_use_by_stack(&scratch.join("after.pb.gz"), Some(&program));
    let reported = go_profile::reported(&report, 0);
    let in_main = |chain: &Chain| chain.last().is_some_and(|leaf| leaf.starts_with("main."));
    for (chain, in_use) in own.iter().filter(|(chain, _)| in_main(chain)) {
        let numbers = reported.get(chain).copied().unwrap_or_default();
        // pprof rounds down each bucket.
        let rounding = 3 * in_use.samples;
        assert!(numbers.held_bytes.abs_diff(in_use.bytes) <= rounding, "{chain:?}: {numbers:?} and {in_use:?}");
        assert!(numbers.held_blocks.abs_diff(in_use.objects) <= rounding, "{chain:?}: {numbers:?} and {in_use:?}");
    }
    assert!(own.keys().any(|chain| chain.last().is_some_and(|leaf| leaf == "main.large")), "{own:?}");
}
