//! Tests that trace the whole machine. Processes of root are left out, because memtrace would patch processes of the
//! machine too.

use std::os::unix::process::CommandExt as _;

use memtrace_tests::page_counts::{PAGE, PageCounts};

use super::super::*;

/// User of the victims.
const USER: u32 = 54341;

/// Number of pages of which one is sampled.
const ONE_IN: u32 = 4;

/// Starts a copy of a victim, as a user other than root.
fn start(scratch: &Scratch, name: &str, arguments: &[&str]) -> Target {
    let mut command = Command::new(scratch.copy(victim::path(name), "mt-others"));
    Target::start(command.args(arguments).uid(USER))
}

fn trace_others() -> Tracer {
    let sample = ONE_IN.to_string();
    Trace::system_wide().options(EACH).options(&["--sample", &sample, "--exclude", "user=root"]).start()
}

/// Returns the reasons for which the report lists a process as not traced.
fn reasons(report: &Report, pid: u32) -> Vec<&str> {
    let processes = report.untraced.processes.iter().filter(|process| process.pid == pid);
    processes.map(|process| &*process.reason).collect()
}

#[test]
fn static_process_has_an_estimate_of_its_pages() {
    let scratch = Scratch::new();
    let Target { mut victim, .. } = start(&scratch, "pages.static", &["small"]);
    let tracer = trace_others();
    let expected = PageCounts::read_from(&mut victim);
    victim.wait_until_reading_stdin();
    let outcome = tracer.stop();
    let [heap, faults] = ["heap", "fault"].map(|class| outcome.report_for(class));
    assert!(patches(expected.pid).is_empty());
    victim.finish();
    assert_eq!((heap.entries_of(expected.pid).len(), &*reasons(&heap, expected.pid)), (0, &["not_patched"][..]));
    assert_eq!((faults.entries_of(expected.pid).len(), &*reasons(&faults, expected.pid)), (1, &[][..]));
    assert_eq!(faults.content.page_sample, Some(ONE_IN));
    assert!(faults.notes.iter().any(|note| note.contains("(one page in 4)")), "{:?}", faults.notes);
    let stacks = expected.stacks(&faults, "write_regions");
    let [stack] = stacks.as_slice() else { panic!("one stack touches all pages: {stacks:#?}") };
    let actual = expected.functions["write_regions"].resident * PAGE;
    let error = stack.content.totals.live_error_bytes.expect("the estimate has an error");
    // One in four of 4,096 pages is in the sample: 1.96 deviations are a twentieth of them.
    let deviations = stack.totals.live_bytes.abs_diff(actual) as f64 / (error as f64 / 1.96);
    assert!(deviations < DEVIATIONS, "{} ± {error} for {actual}", stack.totals.live_bytes);
    assert!((actual / 30..actual / 12).contains(&error), "{error} of {actual}");
}

#[test]
fn patched_process_has_no_page_samples() {
    let scratch = Scratch::new();
    let mut target = start(&scratch, "patch_steps", &["3000", "ballast"]);
    let pid = target.pid();
    let tracer = trace_others();
    // Pages that it touches before its patch are in the sample at first.
    let before = target.victim.work();
    wait_until_patched(pid);
    let after = target.victim.work();
    let outcome = tracer.stop();
    let [heap, faults] = ["heap", "fault"].map(|class| outcome.report_for(class));
    let blocks = only_entry(&heap, pid).totals.alloc_count;
    let since = after.totals.alloc_count - before.totals.alloc_count;
    assert!((since..=after.totals.alloc_count).contains(&blocks), "{blocks} of {after:?}");
    assert_eq!(reasons(&heap, pid), [""; 0]);
    assert_eq!((faults.entries_of(pid).len(), &*reasons(&faults, pid)), (0, &["sampled"][..]));
    assert_eq!(faults.stacks.iter().filter(|stack| stack.pid == pid).count(), 0);
    target.finish();
}
