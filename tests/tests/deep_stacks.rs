//! Deep stacks through functions without frame pointers, compared with glibc's `backtrace` in the same function.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

use std::path::Path;

use memtrace_tests::{CallSite, Stack, Trace, VictimTotals, victim};
use serde::Deserialize;

/// Output of the victim, which [`trace`] reads.
#[derive(Debug, Deserialize)]
struct Work {
    /// Object and offset of each call in the stack of `backtrace`, from leaf to root. Empty with musl.
    #[serde(default)]
    callers: Vec<(String, u64)>,
    #[serde(flatten)]
    totals: VictimTotals,
}

impl Work {
    fn places(&self, program: &Path) -> Vec<CallSite> {
        let object = |name: &str| if name.is_empty() { program.to_owned() } else { name.into() };
        self.callers.iter().map(|(name, offset)| CallSite::in_object(&object(name), *offset)).collect()
    }
}

/// Returns the stack of the victim's only allocation, and the victim's output.
fn trace(name: &str, depth: u32, options: &[&str]) -> (Stack, Work) {
    let mut victim = victim::start_with(name, &[&depth.to_string()]);
    let tracer = Trace::victim(&victim).options(options).start();
    victim.process().write_line("");
    let line = victim.process().read_line();
    let work: Work = serde_json::from_str(&line).expect("the victim prints its totals");
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&work.totals);
    let [stack] = &report.stacks[..] else { panic!("not one stack: {:#?}", report.stacks) };
    (stack.clone(), work)
}

/// Returns the names of the victim's functions, from `_start` to the function that allocates.
fn chain(depth: u32) -> Vec<&'static str> {
    let recursion = (0..=depth).map(|level| if level % 2 == 0 { "wide" } else { "narrow" });
    ["_start", "main"].into_iter().chain(recursion).chain(["allocate"]).collect()
}

/// Asserts that all call sites except the leaf are equal. The leaf calls the allocator and
/// `backtrace` at different addresses.
fn assert_equal_above_leaf(stack: &Stack, reference: &[CallSite]) {
    assert_eq!(stack.call_sites()[1..], reference[1..]);
}

fn assert_matches_backtrace(name: &str, depth: u32, options: &[&str]) {
    let (stack, work) = trace(name, depth, options);
    assert_equal_above_leaf(&stack, &work.places(&victim::path(name)));
    assert_eq!(stack.end, "complete");
    assert_eq!(stack.names_in(&victim::path(name)), chain(depth));
}

#[test]
fn stack_of_20_frames_matches_glibc_backtrace() {
    assert_matches_backtrace("deep", 20, &[]);
}

#[test]
fn stack_in_a_non_pie_executable_matches_glibc_backtrace() {
    assert_matches_backtrace("deep.fixed", 20, &[]);
}

#[test]
fn max_depth_256_gives_a_complete_stack_of_200_frames() {
    assert_matches_backtrace("deep", 200, &["--max-depth", "256"]);
}

#[test]
fn default_max_depth_truncates_at_128_frames() {
    let (stack, work) = trace("deep", 200, &[]);
    assert_eq!(stack.frames.len(), 128);
    assert_eq!(stack.end, "truncated");
    assert_equal_above_leaf(&stack, &work.places(&victim::path("deep"))[..128]);
}

/// Debian's musl has no `.eh_frame`, so the musl function that calls `main` is the outermost frame. The stack counts as
/// complete, because this frame is at the start of the stack memory.
#[test]
fn stack_on_musl_is_complete_at_the_caller_of_main() {
    let (stack, _) = trace("deep.musl", 20, &[]);
    assert_eq!(stack.end, "complete");
    assert!(stack.frames[0].object.as_deref().is_some_and(|object| object.contains("musl")), "{:?}", stack.frames[0]);
    assert_eq!(stack.names()[1..], chain(20)[1..]);
    assert_eq!(stack.names_in(&victim::path("deep.musl")), chain(20)[1..]);
}

/// The symbol table names the musl function that calls `main`.
#[test]
fn stack_in_a_static_musl_program_is_complete() {
    let (stack, _) = trace("deep.musl_static", 20, &[]);
    assert_eq!(stack.end, "complete");
    let expected = [&["libc_start_main_stage2"][..], &chain(20)[1..]].concat();
    assert_eq!(stack.names(), expected);
}
