//! Selection of threads by name, compared with the counters of the victim.

use memtrace_tests::{Report, Totals, Trace, victim};

/// Numbers of a thread of `victims/accounts.c`: thread ID, then allocated and freed bytes and blocks, and numbers that
/// are not used here.
type Counted = [u64; 11];

/// Returns the report of a trace of the victim with these options, and the numbers of its threads.
fn traced(options: &[&str]) -> (Report, Vec<Counted>) {
    let mut victim = victim::start("accounts");
    let tracer = Trace::victim(&victim).options(options).start();
    victim.process().write_line("");
    let _: Vec<Counted> = victim.read_json();
    victim.process().write_line("");
    let mut counted: Vec<Counted> = victim.read_json();
    let outcome = tracer.stop();
    victim.finish();
    counted.pop();
    (outcome.report(), counted)
}

/// Returns the totals of `threads`.
fn sum(threads: &[Counted]) -> Totals {
    let of_thread = |&[_, alloc, allocs, free, frees, ..]: &Counted| Totals {
        free_bytes: free,
        free_count: frees,
        alloc_bytes: alloc,
        alloc_count: allocs,
        ..Totals::live(alloc - free, allocs - frees)
    };
    threads.iter().map(of_thread).sum()
}

/// Asserts that the report has the blocks of the first `recorded` threads, no matter which thread frees them, and that
/// the blocks of the other threads are filtered.
fn assert_equal(options: &[&str], recorded: usize) {
    let (report, counted) = traced(options);
    report.assert_consistent();
    let (recorded, filtered) = counted.split_at(recorded);
    assert_eq!(report.totals, sum(recorded), "{options:?}");
    let filtered = sum(filtered);
    assert_eq!([report.filtered.bytes, report.filtered.count], [filtered.alloc_bytes, filtered.alloc_count]);
}

#[test]
fn only_blocks_of_included_threads_count() {
    assert_equal(&["--thread", "worker-0", "--thread", "worker-1"], 2);
    assert_equal(&["--thread", "worker-0", "--thread", "worker-1", "--exclude", "thread=worker-1"], 1);
}

#[test]
fn blocks_of_excluded_threads_do_not_count() {
    assert_equal(&["--exclude", "thread=worker-7"], 7);
    // Accounts are filtered in the same way.
    let mut victim = victim::start("accounts");
    let tracer = Trace::victim(&victim).options(&["--by", "thread", "--exclude", "thread=worker-7"]).accounts().start();
    victim.process().write_line("");
    let _: Vec<Counted> = victim.read_json();
    victim.process().write_line("");
    let counted: Vec<Counted> = victim.read_json();
    let outcome = tracer.stop();
    victim.finish();
    let accounts = outcome.accounts();
    accounts.assert_consistent();
    assert_eq!(accounts.total.alloc_bytes, sum(&counted[..7]).alloc_bytes);
}

#[test]
fn threads_are_selected_by_their_names_only() {
    let (report, counted) = traced(&["--thread", "worker"]);
    let all = sum(&counted);
    assert_eq!(report.totals, Totals::default());
    assert_eq!([report.filtered.bytes, report.filtered.count], [all.alloc_bytes, all.alloc_count]);
}
