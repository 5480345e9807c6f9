//! Last part of the text report: losses, quality of stacks, debug files, excluded events, notes, and the cost of
//! tracing.

use std::io;
use std::time::Duration;

use memtrace_model::format as number;
use memtrace_model::{
    Amount, Cost, DebugFileCounts, DebugFileOutcome, Demotion, ProcessProfile, Profile, StackEnd, Tick, plain,
};

use super::stack_advice;
use super::text_writer::TextWriter;
use crate::{escape, format};

/// Maximum number of demoted processes with a sentence.
const MAX_DEMOTED: usize = 5;

pub(super) fn write(profile: &Profile, out: &mut TextWriter<'_>) -> io::Result<()> {
    writeln!(out)?;
    losses(profile, out)?;
    if let Some(quality) = format::quality(profile, StackEnd::ALL.len()) {
        writeln!(out, "{}", out.wrapped(&format!("Stacks: {quality}."), 0))?;
    }
    for sentence in stack_advice::sentences(profile) {
        writeln!(out, "{}", out.wrapped(&sentence, 0))?;
    }
    if let Some(counts) = &profile.run.debug_files {
        writeln!(out, "{}", out.wrapped(&debug_files(counts), 0))?;
    }
    for sentence in left_out(profile) {
        writeln!(out, "{}", out.wrapped(&sentence, 0))?;
    }
    match &profile.run.cost {
        Some(cost) => writeln!(out, "{}", out.wrapped(&cost_sentence(cost, profile.run.duration), 0)),
        None => Ok(()),
    }
}

fn losses(profile: &Profile, out: &mut TextWriter<'_>) -> io::Result<()> {
    if profile.losses.total() == 0 {
        return writeln!(out, "Nothing was lost.");
    }
    writeln!(out, "Lost:")?;
    for (reason, count) in profile.losses.iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "{:>14}  {}", number::grouped(count), reason.name())?;
        writeln!(out, "{}", out.wrapped(reason.explanation(), 16))?;
    }
    writeln!(out)
}

/// Returns sentences about events that are in no total although they were not lost, and the notes of the run.
fn left_out(profile: &Profile) -> Vec<String> {
    let mut sentences = Vec::new();
    if profile.run.filtered != Amount::default() {
        let allocations = number::counted(profile.run.filtered.count, "allocation", "allocations");
        sentences
            .push(format!("Filtered: {allocations} of {} excluded by size or thread.", profile.run.filtered.bytes));
    }
    sentences.extend(profile.run.raised.map(|raised| format::capitalised(&format!("{raised}."))));
    let unmatched = profile.unmatched_frees();
    if unmatched > 0 {
        let frees = number::counted(unmatched, "free", "frees");
        let is_filtered = profile.run.filtered != Amount::default();
        sentences.push(match (profile.run.from_start, is_filtered) {
            (false, false) => format!("Unmatched: {frees} of unknown blocks, allocated before tracing began."),
            (false, true) => {
                format!("Unmatched: {frees} of unknown blocks, allocated before tracing began or filtered.")
            }
            (true, false) => format!("Unmatched: {frees} of unknown blocks; their allocations were not traced."),
            (true, true) => format!("Unmatched: {frees} of unknown blocks, filtered or not traced."),
        });
    }
    let inherited = profile.inherited_frees();
    if inherited > 0 {
        let frees = number::counted(inherited, "free", "frees");
        let or = if profile.run.filtered == Amount::default() { "" } else { " or were filtered" };
        sentences.push(format!("Inherited: {frees} of blocks that were allocated before a fork{or}."));
    }
    let samples = profile.unmatched_samples();
    if samples > 0 {
        let frees = number::counted(samples, "free", "frees");
        sentences.push(format!("Samplers: {frees} of unknown blocks, sampled before tracing began or never."));
    }
    sentences.extend(demotions(profile));
    let repeated = profile.repeated_frees();
    if repeated > 0 {
        let frees = number::counted(repeated, "free", "frees");
        sentences.push(format!("Repeated: {frees} by the C library, of blocks that were freed before."));
    }
    let discarded = profile.total().discarded();
    if discarded != Amount::default() {
        sentences.push(format!("Discarded: {}, live at exec.", format::amount(profile.run.class, discarded)));
    }
    sentences.extend(profile.run.tag_functions.iter().map(|function| format!("Tags: {function}.")));
    sentences.extend(profile.run.notes.iter().map(|note| format!("Note: {}.", plain(note))));
    sentences
}

/// Returns sentences about demoted processes, the largest first.
fn demotions(profile: &Profile) -> Vec<String> {
    let mut demoted: Vec<_> = profile.demoted().collect();
    demoted.sort_by_key(|process| std::cmp::Reverse(process.demotion.dropped));
    let Some(phrase) = format::demoted(profile) else { return Vec::new() };
    let first = format!(
        "Processes with more live blocks than a fair share of the ledger were {phrase}. Small blocks of these processes \
         are not followed; a higher --memory-limit or, without one, --max-live gives larger shares."
    );
    let others = demoted.len().saturating_sub(MAX_DEMOTED);
    let rest =
        (others > 0).then(|| format!("Demoted: {} more.", number::counted(others as u64, "process", "processes")));
    [first]
        .into_iter()
        .chain(demoted.into_iter().take(MAX_DEMOTED).map(|process| demotion(profile, process)))
        .chain(rest)
        .collect()
}

/// Returns a sentence about one demoted process: `Demoted: redis-server [71] after 12.3 s, blocks below 64 B not
/// followed; …`.
fn demotion(profile: &Profile, process: &ProcessProfile) -> String {
    let Demotion { at, min_size, dropped, frees } = process.demotion;
    let name = escape::visible(process.comm.raw());
    let since = match at {
        Tick(0) if profile.run.window.is_some() => String::from("before this period"),
        at => format!("after {}", number::duration(at.since_start())),
    };
    let which = match &process.group {
        Some(group) => format!("{name} {}", escape::times(group.runs)),
        None => format!("{name} [{}] {since}", process.pid),
    };
    // In a window of a recording, dropped blocks can have been allocated before the window, so the share is unknown.
    let share = match profile.run.window {
        Some(_) => String::new(),
        None => {
            let share = process.demotion.followed_share(process.total.alloc().bytes);
            format!(", so that {} of the allocated bytes are followed", number::percent(share))
        }
    };
    let blocks = number::counted(dropped.count, "block", "blocks");
    let frees = number::counted(frees, "free", "frees");
    format!(
        "Demoted: {which}, blocks below {min_size} not followed: {blocks} of {}{share}; {frees} of unknown blocks since.",
        dropped.bytes
    )
}

/// Returns a sentence about the search for debug files: `Debug files: 3 downloaded (12.1 MiB), 1 not found.`
fn debug_files(counts: &DebugFileCounts) -> String {
    let part = |outcome: DebugFileOutcome| {
        let size = match outcome {
            DebugFileOutcome::Downloaded => format!(" ({})", counts.downloaded),
            _ => String::new(),
        };
        let count = Some(counts.count(outcome)).filter(|&count| count > 0)?;
        Some(format!("{} {}{size}", number::grouped(count), outcome.name().replace('_', " ")))
    };
    let parts: Vec<_> = DebugFileOutcome::ALL.into_iter().filter_map(part).collect();
    format!("Debug files: {}.", if parts.is_empty() { String::from("none needed") } else { parts.join(", ") })
}

fn cost_sentence(cost: &Cost, traced: Duration) -> String {
    let Cost { events, nested, cpu, cpu_tracing, peak_rss, programs } = *cost;
    let share = if traced.is_zero() {
        String::new()
    } else {
        format!(" ({:.1}% of one processor)", 100.0 * cpu_tracing.as_secs_f64() / traced.as_secs_f64())
    };
    let nested = match nested {
        0 => String::new(),
        some => format!(", {} not counted", number::counted(some, "nested call", "nested calls")),
    };
    let programs = programs.map_or_else(String::new, |programs| {
        let nanoseconds = programs.time.as_nanos() / u128::from(programs.hits.max(1));
        let hits = number::counted(programs.hits, "probe hit", "probe hits");
        format!(" In the targets: about {hits}, each with {nanoseconds} ns in BPF programs and the cost of the trap.")
    });
    format!(
        "Cost: {}{nested}; {} of processor time while tracing{share}, {} in all; peak memory {peak_rss}.{programs}",
        number::counted(events, "event", "events"),
        number::duration(cpu_tracing),
        number::duration(cpu),
    )
}

#[cfg(test)]
mod tests {
    use memtrace_model::{Pid, RunFacts, TagFunctionCalls};

    use super::*;

    #[test]
    fn blocks_of_processes_that_start_in_the_trace_are_not_older() {
        let sentence = |from_start| {
            let process = ProcessProfile { unmatched_frees: 3, ..ProcessProfile::new(Pid(7), "server") };
            let run = RunFacts { from_start, ..RunFacts::default() };
            left_out(&Profile { run, processes: vec![process], ..Profile::default() }).remove(0)
        };
        assert_eq!(sentence(false), "Unmatched: 3 frees of unknown blocks, allocated before tracing began.");
        assert_eq!(sentence(true), "Unmatched: 3 frees of unknown blocks; their allocations were not traced.");
    }

    #[test]
    fn functions_that_set_tags_have_a_sentence_each() {
        let function = |calls| TagFunctionCalls { rule: "leave=f".into(), calls, effective: calls, tested: None };
        let run = RunFacts { tag_functions: [0, 7].map(function).into(), ..RunFacts::default() };
        let sentences = left_out(&Profile { run, ..Profile::default() });
        assert_eq!(
            sentences,
            [
                "Tags: leave=f had no effect: the function was never called; inlined calls have no probe.",
                "Tags: leave=f had an effect in 7 calls."
            ]
        );
    }
}
