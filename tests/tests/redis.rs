//! Trace of redis-server, compared with the memory that Redis counts by jemalloc's block sizes.

use memtrace_tests::redis::{self, Redis};
use memtrace_tests::{Report, Scratch, Totals, Trace};

/// Returns jemalloc's size class of a block of `bytes`: multiples of 16 up to 128, then four sizes for each doubling
/// (jemalloc 5.3, `SIZE CLASSES` in jemalloc(3), with pages of 4 KiB).
fn size_class(bytes: u64) -> u64 {
    match bytes {
        0..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(1 << ((bytes - 1).ilog2() - 2)),
    }
}

/// Returns the live bytes that Redis counts too: as requested, and rounded up to size classes.
///
/// Redis counts the allocations of its own functions (zmalloc.c), not of libraries. A report has only the number and
/// the bytes of a stack's blocks, so each block is rounded from their mean size.
fn redis_bytes(report: &Report) -> (u64, u64) {
    let own = report.stacks.iter().filter(|stack| {
        let leaf = stack.leaf().and_then(|leaf| leaf.name.as_deref()).unwrap_or_default();
        ["zmalloc", "zcalloc", "zrealloc", "ztry"].iter().any(|beginning| leaf.starts_with(beginning))
    });
    let live = own.map(|stack| stack.totals).filter(|numbers| numbers.live_count > 0);
    live.fold((0, 0), |(bytes, rounded), Totals { live_bytes, live_count, .. }| {
        (bytes + live_bytes, rounded + live_count * size_class(live_bytes.div_ceil(live_count)))
    })
}

#[test]
fn size_classes_match_jemalloc() {
    let sizes = [1, 8, 9, 16, 17, 128, 129, 160, 161, 193, 257, 1024, 1025, 14336, 14337].map(size_class);
    assert_eq!(sizes, [8, 8, 16, 16, 32, 128, 160, 160, 192, 224, 320, 1024, 1280, 14336, 16384]);
}

#[test]
fn live_bytes_in_size_classes_match_redis_used_memory() {
    let scratch = Scratch::new();
    let socket = redis::socket_in(&scratch);
    let mut tracer = Trace::command(redis::command(&socket)).option("--ring-size").option("64MiB").start();
    let mut redis = Redis::connect(&socket);
    // Each stack has blocks of one size, so the mean is exact.
    let value = "x".repeat(300);
    for number in 0..4000 {
        redis.send(&["SET", &format!("key:{number:08}"), &value]);
        redis.send(&["HSET", &format!("hash:{:08}", number % 20), &format!("field:{number:08}"), &value]);
        if number % 5 == 0 {
            redis.send(&["DEL", &format!("key:{:08}", number / 2)]);
        }
    }
    let used = redis.used_memory();
    tracer.process().signal(libc::SIGINT);
    assert!(tracer.process().wait_for_stderr_line("memtrace: wrote"));
    // The server holds memtrace's output open, so the server must end first.
    redis.shut_down();
    let report = tracer.wait().report();
    report.assert_consistent();
    report.assert_nothing_lost();
    let (bytes, rounded) = redis_bytes(&report);
    let error = |bytes: u64| (bytes as f64 - used as f64) / used as f64;
    assert!(error(rounded).abs() < 0.02, "memtrace: {rounded}, redis: {used}, {:.2} %", error(rounded) * 100.0);
    // The requested bytes alone do not match, so the test does depend on the rounding.
    assert!(error(bytes) < -0.02, "{bytes} of {used}");
    println!("{rounded} of {used}: {:.2} %", error(rounded) * 100.0);
}
