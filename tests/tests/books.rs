//! The victims' books are themselves compared with a second source, the calls that `count_shim` sees. No root needed.

use std::process::Command;

use memtrace_tests::victim::{self, Victim};
use memtrace_tests::{Counts, Scratch};

fn agrees(name: &str, arguments: &[&str]) {
    let scratch = Scratch::new();
    let counts = Counts::create(&scratch);
    let mut victim = Victim::run(Command::new(victim::path(name)).args(arguments).envs(counts.environment()));
    counts.begin();
    let books = victim.work();
    let seen = counts.read();
    assert_eq!(seen.numbers, books.numbers);
    assert_eq!(seen.unmatched_frees, books.unmatched_frees);
    victim.finish();
}

#[test]
fn the_books_of_exact_agree_with_the_calls_that_were_made() {
    agrees("exact", &[]);
}

#[test]
fn the_books_of_realloc_agree_with_the_calls_that_were_made() {
    agrees("realloc", &[]);
}

#[test]
fn the_books_of_aligned_agree_with_the_calls_that_were_made() {
    agrees("aligned", &[]);
}

#[test]
fn the_books_of_threads_agree_with_the_calls_that_were_made() {
    agrees("threads", &[]);
}

#[test]
fn the_books_of_flood_agree_with_the_calls_that_were_made() {
    agrees("flood", &["5000"]);
}

#[test]
fn the_books_of_steady_agree_with_the_calls_that_were_made() {
    agrees("steady", &["100"]);
}

#[test]
fn the_books_of_peak_agree_with_the_calls_that_were_made() {
    agrees("peak", &[]);
}

#[test]
fn the_books_of_sizes_without_limits_agree_with_the_calls_that_were_made() {
    agrees("sizes", &["0", "18446744073709551615"]);
}

#[test]
fn the_books_of_the_cpp_victim_agree_with_the_calls_that_were_made() {
    agrees("widgets", &[]);
}

#[test]
fn the_books_of_the_rust_victim_agree_with_the_calls_that_were_made() {
    agrees("victim-rust-vec", &[]);
}
