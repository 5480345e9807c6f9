//! Each tested release of Go, by a program that the test compiles.

use memtrace_tests::go_releases::{VARIANTS, build, installed};
use memtrace_tests::process::run;

use super::*;

#[test]
fn live_blocks_of_all_releases_equal_their_own_profiles() {
    for (release, go) in installed() {
        let cache = Scratch::new();
        for (name, flags) in VARIANTS {
            let program = cache.join(name);
            build(&go, "go_heap.go", flags, &cache, &program);
            println!("Go {release}, {name}");
            assert_equals_own_profile(&program);
        }
    }
}

/// Returns the in-use objects and bytes of each stack as `go tool pprof -raw` prints them, by the functions from root to leaf.
fn raw_of_pprof(program: &Path, profile: &Path) -> BTreeMap<Chain, Vec<[u64; 2]>> {
    let mut pprof = Command::new("go");
    let text = run(pprof.args(["tool", "pprof", "-raw"]).arg(program).arg(profile));
    let section = |start: &str, end: &str| {
        let after = text.split_once(start).expect("the section exists").1;
        after.split_once(end).map_or(after, |(section, _)| section).to_owned()
    };
    // `     1: 0x46b5b9 M=1 main.small /src/go_heap.go:37 s=36`, and further lines for the callers of inlined calls.
    let mut functions: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut number = 0;
    for line in section("Locations\n", "\nMappings").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = match words[..] {
            [first, _, _, name, ..] if first.ends_with(':') => {
                number = first.trim_end_matches(':').parse().expect("a number");
                name
            }
            [name, ..] => name,
            [] => continue,
        };
        functions.entry(number).or_default().push(name.to_owned());
    }
    // `       118     118     966656     966656: 1 2 3 `: allocated objects and bytes, in-use objects and bytes, locations.
    let mut stacks: BTreeMap<Chain, Vec<[u64; 2]>> = BTreeMap::new();
    for line in section("Samples:\n", "\nLocations").lines() {
        let Some((numbers, locations)) = line.split_once(": ") else { continue };
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let [_, _, objects, bytes] = numbers[..] else { continue };
        let locations = locations.split_whitespace().filter_map(|number| functions.get(&number.parse().ok()?));
        let mut chain: Chain = locations.flatten().filter(|name| *name != "runtime.goexit").cloned().collect();
        chain.reverse();
        stacks.entry(chain).or_default().push([objects, bytes]);
    }
    stacks
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
    let pprof = raw_of_pprof(&program, &scratch.join("after.pb.gz"));
    let reported = go_profile::reported(&report, 0);
    let own = |chain: &Chain| chain.last().is_some_and(|leaf| leaf.starts_with("main."));
    for (chain, samples) in pprof.iter().filter(|(chain, _)| own(chain)) {
        let [objects, bytes] = samples.iter().fold([0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
        let numbers = reported.get(chain).copied().unwrap_or_default();
        // pprof rounds down each bucket.
        let rounding = 3 * samples.len() as u64;
        assert!(numbers.held_bytes.abs_diff(bytes) <= rounding, "{chain:?}: {numbers:?} and {bytes} bytes");
        assert!(numbers.held_blocks.abs_diff(objects) <= rounding, "{chain:?}: {numbers:?} and {objects} blocks");
    }
    assert!(pprof.keys().any(|chain| chain.last().is_some_and(|leaf| leaf == "main.large")), "{pprof:?}");
}
