//! Each tested release of Go, by a program that the test compiles.

use memtrace_tests::go_releases::{VARIANTS, build, installed};

use super::*;

#[test]
fn totals_of_all_releases_equal_their_own_statistics() {
    for (release, go) in installed() {
        let cache = Scratch::new();
        for variant in &VARIANTS {
            let program = cache.join(variant.name);
            build(&go, "go_totals.go", variant, &cache, &program);
            println!("Go {release}, {}", variant.name);
            assert_eq!(assert_equals_own_statistics(&program), format!("go{release}"));
            assert_is_near_own_statistics(&program);
        }
    }
}
