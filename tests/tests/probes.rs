//! Tags and claims by the probes of `memtrace.h` and of the crate `memtrace-probes`, compared with
//! the victims' counters.

mod alone;

use std::collections::BTreeMap;

use memtrace_tests::totals_by_tag::{self, assert_equal};
use memtrace_tests::{Totals, Trace, victim};

const FROM: &[&str] = &["--tag-from", "probes"];

#[test]
fn tags_in_c_have_the_totals_of_the_victim() {
    assert_equal("probes", &["ni", "10000"], FROM, 41);
}

#[test]
fn computed_names_in_c_appear() {
    assert_equal("probes", &["nic", "10000"], FROM, 61);
}

#[test]
fn scopes_in_cpp_have_the_totals_of_the_victim() {
    assert_equal("probes.cpp", &["ni", "10000"], FROM, 41);
}

#[test]
fn computed_names_in_cpp_appear() {
    assert_equal("probes.cpp", &["nic", "10000"], FROM, 61);
}

#[test]
fn claimed_blocks_move_to_the_tag_of_the_claim() {
    assert_equal("probes", &["nip", "10000"], FROM, 41);
    assert_equal("probes.cpp", &["nicp", "10000"], FROM, 61);
}

#[test]
fn scopes_and_claims_in_rust_have_the_totals_of_the_victim() {
    assert_equal("victim-rust-probes", &["10000"], FROM, 13);
}

#[test]
fn probes_of_a_file_are_used() {
    let from = format!("{}:probes", victim::path("probes").display());
    assert_equal("probes", &["nic", "2000"], &["--tag-from", &from], 61);
}

#[test]
fn claimed_blocks_move_between_accounts() {
    // A claimed block stays a block of its allocator.
    let options = [FROM, &["--by", "allocator,tag"]].concat();
    let (expected, accounts) = totals_by_tag::accounts("probes", &["nip", "10000"], &options);
    let allocator = accounts.accounts[0].names[0].clone();
    for (name, totals) in expected {
        let account = accounts.assert_equals(&[&allocator, &name], &totals);
        let current = [account.current_bytes, account.current_count];
        assert_eq!(current, [totals.live_bytes, totals.live_count], "{name}");
        assert_eq!(account.high_bytes_at_least, account.high_bytes_at_most, "{name}");
    }
}
