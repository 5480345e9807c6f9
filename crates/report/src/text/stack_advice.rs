//! Sentences about incomplete stacks that an option of memtrace or of a language runtime completes.

use std::collections::BTreeSet;

use memtrace_model::format as number;
use memtrace_model::{FrameId, MAX_FRAMES, ProcessProfile, Profile, Runtime, StackEnd, StackProfile};

use crate::samplers;

/// Minimum share of events with incomplete stacks for a sentence.
const LEAST: f64 = 0.01;

/// Returns the sentences.
pub(super) fn sentences(profile: &Profile) -> Vec<String> {
    let all: u64 = profile.stacks.iter().map(|stack| stack.usage.events()).sum();
    let share = |counts: &dyn Fn(&StackProfile) -> bool| {
        let count: u64 = profile.stacks.iter().filter(|stack| counts(stack)).map(|stack| stack.usage.events()).sum();
        count as f64 / all.max(1) as f64
    };
    let mut sentences = Vec::new();
    // A walk of `MAX_FRAMES` frames cannot get deeper. Its stack has at least as many frames, because inlined functions
    // add frames.
    let is_truncated = |stack: &StackProfile| stack.end == StackEnd::Truncated && stack.frames.len() < MAX_FRAMES;
    let of_go: Vec<bool> = profile.processes.iter().map(|process| samplers::has_go_profile(profile, process)).collect();
    let is_of_go = |stack: &StackProfile| of_go.get(stack.process) == Some(&true);
    let of_runtime = share(&|stack| is_truncated(stack) && is_of_go(stack));
    if of_runtime >= LEAST {
        sentences.push(format!(
            "{} of the stacks have more frames than Go's runtime keeps: 32 before Go 1.23, and 128 from then on.",
            number::percent(of_runtime)
        ));
    }
    let truncated = share(&|stack| is_truncated(stack) && !is_of_go(stack));
    if truncated >= LEAST {
        sentences.push(format!(
            "{} of the stacks have more frames than --max-depth; a higher one, at most {MAX_FRAMES}, shows their callers.",
            number::percent(truncated)
        ));
    }
    let runtime_of = |stack: &StackProfile| {
        let process = profile.processes.get(stack.process);
        Runtime::of_executable(process.and_then(|process: &ProcessProfile| process.exe.as_deref())?)
    };
    let is_cut = |stack: &StackProfile| matches!(stack.end, StackEnd::GeneratedCut | StackEnd::NoTable);
    let advice = [
        (
            Runtime::Erlang,
            "Generated code of Erlang keeps frame pointers and has names with `erl +JPperf true +JPfp true`.",
        ),
        (Runtime::Ruby, "Generated code of Ruby keeps frame pointers and has names with `ruby --yjit-perf`."),
    ];
    for (runtime, sentence) in advice {
        if share(&|stack| is_cut(stack) && runtime_of(stack) == Some(runtime)) >= LEAST {
            sentences.push(String::from(sentence));
        }
    }
    let with_ghc = processes_with_ghc(profile);
    if share(&|stack| stack.end == StackEnd::NoRow && with_ghc.contains(&stack.process)) >= LEAST {
        let sentence = "Code of GHC keeps no frame pointer: its stacks are complete if it is compiled with -g.";
        sentences.push(String::from(sentence));
    }
    sentences
}

/// Returns the indices of the processes with code of GHC, which is recognized by function names of its runtime.
fn processes_with_ghc(profile: &Profile) -> BTreeSet<usize> {
    let is_of_ghc = |&frame: &FrameId| {
        let name = profile.frames.get(frame.index()).and_then(|frame| frame.name.as_ref().ok());
        name.is_some_and(|name| name.0.starts_with("stg_") || name.0 == "hs_main")
    };
    let has_ghc = |stack: &&StackProfile| stack.frames.iter().any(is_of_ghc);
    profile.stacks.iter().filter(has_ghc).map(|stack| stack.process).collect()
}

#[cfg(test)]
mod tests {
    use memtrace_model::{Amount, Bytes, Part, Pid, Quantities, Quantity, SampleSource, Sampler};

    use super::*;

    /// Returns a profile of 100 events. 13 of them have stacks with `end` and `frames` frames, in a process with `exe`.
    fn profile(exe: &str, end: StackEnd, frames: usize) -> Profile {
        let stack = |process, end, count, frames: Vec<FrameId>| {
            let usage = Quantities::default().with_amount(Quantity::AllocBytes, Amount { bytes: Bytes(count), count });
            StackProfile { usage, ..StackProfile::new(process, Part::WHOLE, frames.into(), end) }
        };
        let process = |exe: &str| ProcessProfile { exe: Some(exe.into()), ..ProcessProfile::new(Pid(7), "a") };
        let stacks = vec![
            stack(0, StackEnd::Complete, 60, Vec::new()),
            stack(0, end, 13, vec![FrameId::new(0); frames]),
            stack(1, StackEnd::GeneratedCut, 27, Vec::new()),
        ];
        Profile { processes: vec![process(exe), process("/usr/bin/node")], stacks, ..Profile::default() }
    }

    #[test]
    fn stacks_that_an_option_completes_have_advice() {
        let sentences = |exe, end, frames| sentences(&profile(exe, end, frames));
        let expected =
            "13.0% of the stacks have more frames than --max-depth; a higher one, at most 256, shows their callers.";
        assert_eq!(sentences("/usr/bin/R", StackEnd::Truncated, 64), [expected]);
        assert_eq!(sentences("/usr/bin/R", StackEnd::Truncated, 256), [""; 0]);
        assert!(sentences("/usr/bin/ruby3.3", StackEnd::GeneratedCut, 3)[0].contains("--yjit-perf"));
        assert!(sentences("/usr/lib/erts/beam.smp", StackEnd::NoTable, 3)[0].contains("+JPfp true"));
    }

    #[test]
    fn no_option_completes_stacks_that_the_runtime_of_go_has_cut() {
        let mut profile = profile("/usr/bin/caddy", StackEnd::Truncated, 32);
        profile.run.samplers.add(Pid(7), Sampler { source: SampleSource::Go, interval: None });
        let expected =
            "13.0% of the stacks have more frames than Go's runtime keeps: 32 before Go 1.23, and 128 from then on.";
        assert_eq!(sentences(&profile), [expected]);
    }

    #[test]
    fn stacks_of_other_processes_have_no_advice() {
        assert_eq!(sentences(&profile("/usr/bin/ruby", StackEnd::Complete, 3)), [""; 0]);
    }
}
