//! Sentences about the samplers of targets, which are the sources of estimates.

use memtrace_model::format as number;
use memtrace_model::{Bytes, PatchedProcess, ProcessProfile, Profile, Runtime, SampleSource, Sampler, Samplers, plain};

use crate::escape;
use crate::estimate::{self, SampledPart};

/// Maximum number of samplers in a phrase.
const SHOWN: usize = 3;

/// Sentence about the metric `growth`, after a blank.
const GROWTH: &str =
    " Go's own profile does not tell when a block was allocated: the growth of a stack is its net growth.";

/// Maximum number of processes in a note, and of patched processes with a sentence.
const PROCESSES: usize = 5;

/// Maximum number of functions that are not patched in a sentence.
const GAPS: usize = 8;

/// Returns a phrase with the samplers, and with the number of their processes if there are several processes: `Go's own
/// profile, one sample each 512 KiB (2 processes)`. Returns `None` if all blocks are exact.
pub(super) fn sources(profile: &Profile) -> Option<String> {
    if !SampledPart::of_profile(profile).is_sampled() {
        return None;
    }
    let samplers: Vec<_> = profile.run.samplers.all().collect();
    let (shown, others) = samplers.split_at(SHOWN.min(samplers.len()));
    let mut phrases: Vec<_> = shown.iter().map(|&sampler| source(profile, sampler)).collect();
    if !others.is_empty() {
        phrases.push(number::counted(others.len() as u64, "other sampler", "other samplers"));
    }
    if phrases.is_empty() {
        phrases.push(String::from("samples that the targets have taken"));
    }
    Some(phrases.join("; "))
}

fn source(profile: &Profile, sampler: Sampler) -> String {
    let processes = profile.run.samplers.iter().filter(|(_, of_process)| *of_process == sampler).count();
    match (profile.is_of_one_image(), processes) {
        (true, _) | (false, 0) => sampler.to_string(),
        (false, some) => format!("{sampler} ({})", number::counted(some as u64, "process", "processes")),
    }
}

/// Returns true if the blocks of a process are from the profile that the runtime of Go keeps since the start of the process.
pub(super) fn has_go_profile(profile: &Profile, process: &ProcessProfile) -> bool {
    let is_go = |sampler: Sampler| sampler.source == SampleSource::Go;
    let samplers = &profile.run.samplers;
    // If there are very many processes, some samplers are known without their process.
    let may_be_go = || process.rss.is_some_and(|rss| rss.runtime == Some(Runtime::Go));
    samplers.of(process.pid).any(is_go) || samplers.of_unknown().any(is_go) && may_be_go()
}

/// Returns the interval that all of `samplers` have; `None` if the intervals differ, if one is not known, or if there are no
/// samplers.
pub(super) fn interval(mut samplers: impl Iterator<Item = Sampler>) -> Option<Bytes> {
    let first = samplers.next()?.interval;
    first.filter(|_| samplers.all(|sampler| sampler.interval == first))
}

/// Returns sentences about the estimates of a report; `None` if all blocks are exact. `is_of_marks`: true if only blocks
/// count that were allocated between two marks.
pub(super) fn sentences(profile: &Profile, is_of_marks: bool) -> Option<String> {
    let sources = sources(profile)?;
    let most = most_without_samples(profile);
    let growth = if is_of_marks && profile.run.samplers.include_go() { GROWTH } else { "" };
    Some(format!(
        "Numbers with ± or with two ends are estimates from {sources}. Five of a hundred intervals do not contain the \
         true number.{most}{growth}"
    ))
}

/// Returns the legend of a picture: `Estimates: Go's own profile, one sample each 512 KiB.` Returns `None` if all blocks are
/// exact.
pub(super) fn legend(profile: &Profile) -> Option<String> {
    sources(profile).map(|sources| format!("Estimates: {sources}.{}", most_without_samples(profile)))
}

/// Returns a sentence for each process whose allocator was patched, the one with the most samples first. Returns no
/// sentence in a window of a recording, because the numbers describe the whole trace.
pub(super) fn patched(profile: &Profile) -> Vec<String> {
    if profile.run.window.is_some() {
        return Vec::new();
    }
    let mut processes: Vec<_> = profile.run.patched.iter().collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.samples));
    let others = processes.len().saturating_sub(PROCESSES);
    let rest = (others > 0).then(|| format!("Patched: {}.", number::counted(others as u64, "other", "others")));
    processes.into_iter().take(PROCESSES).map(patched_process).chain(rest).collect()
}

/// Returns a sentence: `Patched: redis-server (4711): 6 functions, 12.30 GiB allocated, 120,334 samples, stopped for 300 µs.`
fn patched_process(process: &PatchedProcess) -> String {
    let functions = number::counted(process.functions.into(), "function", "functions");
    let about = if process.exact { "" } else { "about " };
    let allocated = process.allocated.map(|bytes| format!("{about}{bytes} allocated"));
    let samples = number::counted(process.samples, "sample", "samples");
    let times = number::counted(process.level.into(), "time", "times");
    let full = (process.level > 0).then(|| format!("their table was full {times}"));
    let stopped = format!("stopped for {}", number::short(process.stop));
    let calls = number::counted(process.rewound.into(), "system call", "system calls");
    let restarted = (process.rewound > 0).then(|| format!("{calls} restarted"));
    let parts: Vec<_> =
        [Some(functions), allocated, Some(samples), full, Some(stopped), restarted].into_iter().flatten().collect();
    let gaps = process.gaps.iter().map(|gap| plain(gap).into_owned());
    let missing = match process.gaps.is_empty() {
        true => String::new(),
        false => format!(" Not sampled: {}.", number::limited_list(gaps, GAPS)),
    };
    let name = escape::visible(process.comm.raw());
    format!("Patched: {name} ({}): {}.{missing}", process.pid, parts.join(", "))
}

/// Returns a note for tables of accounts, which have no errors: the processes whose numbers are estimates. Returns `None` if
/// no process has a sampler.
#[must_use]
pub fn account_note(samplers: &Samplers) -> Option<String> {
    let phrase = |sampler: Sampler| {
        let of_processes = samplers.iter().filter(|(_, of_process)| *of_process == sampler);
        let pids: Vec<_> = of_processes.map(|(pid, _)| pid.to_string()).collect();
        let is_listed = !pids.is_empty();
        is_listed.then(|| format!("{} ({sampler})", number::limited_list(pids.into_iter(), PROCESSES)))
    };
    let phrases: Vec<_> = samplers.all().filter_map(phrase).collect();
    let processes = phrases.join("; ");
    (!phrases.is_empty()).then(|| {
        format!("the numbers of these processes, and sums with them, are estimates without errors: {processes}")
    })
}

/// Returns a sentence about stacks without samples, after a blank. Returns an empty text if no interval is known.
fn most_without_samples(profile: &Profile) -> String {
    let most = estimate::most_without_samples(profile);
    most.map(|most| format!(" A stack without samples holds less than {} with 95 %.", Bytes(most))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::{Comm, Pid, ProcessProfile, RunFacts};

    use super::*;

    const GO: Sampler = Sampler { source: SampleSource::Go, interval: Some(Bytes(512 << 10)) };
    const JEMALLOC: Sampler = Sampler { source: SampleSource::Jemalloc, interval: None };

    fn profile(samplers: &[(u32, Sampler)], processes: u32) -> Profile {
        let mut all = Samplers::default();
        samplers.iter().for_each(|&(pid, sampler)| all.add(Pid(pid), sampler));
        Profile {
            run: RunFacts { samplers: all, ..RunFacts::default() },
            processes: (1..=processes).map(|pid| ProcessProfile::new(Pid(pid), "server")).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn sources_have_the_number_of_their_processes() {
        assert_eq!(sources(&profile(&[], 2)), None);
        let one = sources(&profile(&[(1, GO)], 1));
        assert_eq!(one.as_deref(), Some("Go's own profile, one sample each 512 KiB"));
        let several = sources(&profile(&[(1, GO), (2, GO), (2, JEMALLOC)], 3));
        let expected = "Go's own profile, one sample each 512 KiB (2 processes); jemalloc's own samples (1 process)";
        assert_eq!(several.as_deref(), Some(expected));
    }

    #[test]
    fn many_sources_are_counted() {
        let interval = |bytes| Sampler { interval: Some(Bytes(bytes)), ..GO };
        let samplers: Vec<_> = (1..=5).map(|pid| (pid, interval(u64::from(pid) << 10))).collect();
        let text = sources(&profile(&samplers, 5)).unwrap();
        assert!(text.ends_with("one sample each 3 KiB (1 process); 2 other samplers"), "{text}");
    }

    #[test]
    fn only_a_common_interval_is_an_interval() {
        let tcmalloc = Sampler { source: SampleSource::Tcmalloc, ..GO };
        let of = |samplers: &[Sampler]| interval(samplers.iter().copied());
        assert_eq!([of(&[]), of(&[JEMALLOC]), of(&[GO, JEMALLOC]), of(&[JEMALLOC, GO])], [None; 4]);
        assert_eq!(of(&[GO, tcmalloc]), Some(Bytes(512 << 10)));
        assert_eq!(of(&[GO, Sampler { interval: Some(Bytes(1)), ..GO }]), None);
    }

    #[test]
    fn accounts_have_a_note_with_the_processes() {
        assert_eq!(account_note(&Samplers::default()), None);
        let samplers: Vec<_> = (1..=7).map(|pid| (pid, GO)).chain([(9, JEMALLOC)]).collect();
        let expected = "the numbers of these processes, and sums with them, are estimates without errors: 1, 2, 3, 4, \
             5, 2 more (Go's own profile, one sample each 512 KiB); 9 (jemalloc's own samples)";
        assert_eq!(account_note(&profile(&samplers, 9).run.samplers).as_deref(), Some(expected));
    }

    /// Returns the facts about a patched process with this number of samples.
    fn patched_server(samples: u64) -> PatchedProcess {
        PatchedProcess {
            pid: Pid(4711),
            comm: Comm::from("redis-server"),
            functions: 6,
            gaps: [].into(),
            allocated: Some(Bytes(3 << 30)),
            exact: true,
            samples,
            not_inserted: 0,
            level: 0,
            stop: Duration::from_micros(310),
            rewound: 0,
        }
    }

    fn with_patched(patched: Vec<PatchedProcess>) -> Profile {
        Profile { run: RunFacts { patched, ..RunFacts::default() }, ..Profile::default() }
    }

    #[test]
    fn patched_processes_have_sentences() {
        let plain = patched_server(120_334);
        let all = PatchedProcess {
            pid: Pid(9),
            comm: Comm::from("bad\n\u{1b}[2J"),
            functions: 1,
            gaps: [String::from("xallocx: it resizes blocks in place"), String::from("valloc\u{7}: no site")].into(),
            exact: false,
            level: 3,
            rewound: 1,
            ..patched_server(1)
        };
        let unknown = PatchedProcess { allocated: None, ..patched_server(0) };
        let expected = [
            "Patched: redis-server (4711): 6 functions, 3.00 GiB allocated, 120,334 samples, stopped for 310 µs.",
            "Patched: bad \u{fffd}[2J (9): 1 function, about 3.00 GiB allocated, 1 sample, their table was full 3 \
             times, stopped for 310 µs, 1 system call restarted. Not sampled: xallocx: it resizes blocks in place, \
             valloc\u{fffd}: no site.",
            "Patched: redis-server (4711): 6 functions, 0 samples, stopped for 310 µs.",
        ];
        assert_eq!(patched(&with_patched(vec![unknown, plain, all])), expected);
    }

    #[test]
    fn many_patched_processes_are_counted() {
        let mut profile = with_patched((0..7).map(patched_server).collect());
        let sentences = patched(&profile);
        assert_eq!(sentences.len(), 6);
        assert!(sentences[0].contains("6 samples") && sentences[4].contains("2 samples"), "{sentences:?}");
        assert_eq!(sentences[5], "Patched: 2 others.");
        profile.run.window = Some(Duration::ZERO..Duration::from_secs(1));
        assert_eq!(patched(&profile), [""; 0]);
    }

    #[test]
    fn the_largest_interval_limits_a_stack_without_samples() {
        // 512 KiB times 2.99573, the logarithm of 20, is 1.498 MiB.
        let go = profile(&[(1, GO)], 1);
        let text = sentences(&go, false).unwrap();
        let expected = "Numbers with ± or with two ends are estimates from Go's own profile, one sample each 512 KiB. \
             Five of a hundred intervals do not contain the true number. A stack without samples holds less than \
             1.50 MiB with 95 %.";
        assert_eq!(text, expected);
        assert_eq!(sentences(&go, true).unwrap(), format!("{expected}{GROWTH}"));
        let text = sentences(&profile(&[(1, JEMALLOC)], 1), true).unwrap();
        assert!(text.ends_with("do not contain the true number."), "{text}");
    }
}
