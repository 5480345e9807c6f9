//! Sentences about the RSS of the traced processes, and about the part of the RSS or of its growth that traced blocks
//! explain.

use memtrace_model::format as number;
use memtrace_model::{Bytes, EventClass, Measure, ProcessProfile, Profile, Quantity, ResidentSet, Runtime};

use crate::estimate::{SampledPart, SampledProcesses, Uncertainty};
use crate::{format, samplers};

/// If the blocks explain at least this share, the rest needs no sentence.
const EXPLAINED: f64 = 0.9;

/// If shared memory is at least this share of the unexplained RSS, the sentence names shared memory as the reason.
const MOST: f64 = 0.5;

/// Live bytes and RSS of all processes that run at the end.
struct Sum<'a> {
    live: Bytes,
    /// Uncertainty of `live`; `None` if it is exact.
    uncertainty: Option<Uncertainty>,
    /// Upper bound of the part of the RSS that consists of live blocks, summed over the processes. Not all live blocks
    /// need be resident, and blocks of one process explain no RSS of another.
    explained: Bytes,
    /// `None` if the RSS has not grown, if a process has started during the trace, or if live blocks can be older than the
    /// trace.
    growth: Option<Growth>,
    rss: ResidentSet,
    /// Number of the processes.
    count: u64,
    /// Process with the largest part of the RSS that its blocks do not explain; `None` if all are in groups.
    largest: Option<&'a ProcessProfile>,
}

/// Growth of the RSS of the processes that grew. All traced blocks were allocated during the growth. So their share of the
/// growth says more than their share of the RSS, which also contains older blocks. Go's own profile is an exception: it also
/// contains older blocks.
struct Growth {
    bytes: Bytes,
    /// Upper bound of the part that consists of live blocks.
    explained: Bytes,
}

impl Growth {
    fn of<'a>(processes: impl Iterator<Item = (&'a ProcessProfile, ResidentSet)>) -> Option<Self> {
        let mut growth = Self { bytes: Bytes(0), explained: Bytes(0) };
        for (process, rss) in processes {
            let grown = rss.end.0.saturating_sub(rss.start?.0);
            growth.bytes.0 = growth.bytes.0.saturating_add(grown);
            growth.explained.0 = growth.explained.0.saturating_add(grown.min(process.total.live().bytes.0));
        }
        (growth.bytes.0 > 0).then_some(growth)
    }
}

impl Sum<'_> {
    /// Returns the upper bound of the share of live blocks, from 0 to 1: in the growth if it is known, else in the RSS.
    fn share(&self) -> f64 {
        let (part, whole) = match &self.growth {
            Some(growth) => (growth.explained, growth.bytes),
            None => (self.explained, self.rss.end),
        };
        part.0 as f64 / whole.0.max(1) as f64
    }

    /// Returns a word before the share, if it is an estimate.
    const fn about(&self) -> &'static str {
        if self.uncertainty.is_some() { "about " } else { "" }
    }

    /// Returns the name of the whole that [`Self::share`] is a share of. `rss`: words for the RSS.
    fn whole(&self, rss: &'static str) -> &'static str {
        if self.growth.is_some() { "the growth" } else { rss }
    }
}

/// Returns the sum; `None` if no traced process runs at the end, or if live blocks are left out.
fn sum(profile: &Profile) -> Option<Sum<'_>> {
    // The live blocks of a window, and live blocks of a minimum age, are only a part of the blocks that can be in the
    // RSS.
    if profile.run.class != EventClass::Heap || profile.run.window.is_some() || profile.run.older.is_some() {
        return None;
    }
    let known = || profile.processes.iter().filter_map(|process| Some((process, process.rss?)));
    let single = known().filter(|(process, _)| process.group.is_none());
    let largest = single.max_by_key(|(process, rss)| unexplained(process.total.live().bytes, rss));
    let rss = known().map(|(_, rss)| rss).reduce(ResidentSet::plus)?;
    let has_grown = rss.start.is_some_and(|start| rss.end > start);
    let has_old_blocks = known().any(|(process, _)| samplers::has_go_profile(profile, process));
    Some(Sum {
        live: Bytes(known().map(|(process, _)| process.total.live().bytes.0).sum()),
        uncertainty: sampled(profile).uncertainty(profile, Quantity::LiveBytes),
        explained: Bytes(known().map(|(process, rss)| process.total.live().bytes.0.min(rss.end.0)).sum()),
        growth: Growth::of(known()).filter(|_| has_grown && !has_old_blocks),
        rss,
        count: known().map(|(process, _)| process.runs()).sum(),
        largest: largest.map(|(process, _)| process),
    })
}

/// Returns the sampled part of the processes with a known RSS.
fn sampled(profile: &Profile) -> SampledPart {
    let parts = SampledProcesses::of(profile);
    let known = profile.processes.iter().enumerate().filter(|(_, process)| process.rss.is_some());
    known.fold(SampledPart::default(), |mut sum, (index, _)| {
        sum += parts.get(index);
        sum
    })
}

/// Returns a phrase for the titles of pictures: `RSS 512.00 MiB (+13.00 MiB), at most 98.7% of the growth explained`.
pub(super) fn phrase(profile: &Profile) -> Option<String> {
    let sum = sum(profile)?;
    let (end, percent) = (sum.rss.end, number::percent(sum.share()));
    let about = sum.about();
    Some(format!("RSS {end}{}, at most {about}{percent} of {} explained", change(sum.rss), sum.whole("it")))
}

/// Returns the change of an RSS in parentheses, after a space; nothing if a process has started during the trace.
fn change(rss: ResidentSet) -> String {
    let change = rss.start.map(|start| format!(" ({})", format::change(Bytes(rss.end.0.wrapping_sub(start.0)))));
    change.unwrap_or_default()
}

/// Returns sentences for reports; `None` if no traced process runs at the end.
pub(super) fn sentences(profile: &Profile) -> Option<String> {
    let sum = sum(profile)?;
    let (share, whole, about) = (sum.share(), sum.whole("it"), sum.about());
    let Sum { live, uncertainty, explained, growth, rss, count, largest } = sum;
    let of = match count {
        1 => String::from("The RSS is"),
        count => format!("The RSS of {count} processes, with shared pages once for each, is"),
    };
    let percent = number::percent(share);
    let (end, change) = (rss.end, change(rss));
    let live_text = match uncertainty {
        Some(uncertainty) => format!("estimated {live}{}", uncertainty.suffix(Measure::Bytes, live.0)),
        None => live.to_string(),
    };
    let mut first =
        format!("{of} {end}{change}; the {live_text} of live blocks explain at most {about}{percent} of {whole}.");
    let least = uncertainty.map_or(live.0, |uncertainty| uncertainty.ends(live.0)[0]);
    if explained.0 < least {
        first.push_str(" A part of the live blocks is not resident.");
    }
    if share >= EXPLAINED {
        return Some(first);
    }
    let Some((largest, rss)) = largest.and_then(|largest| Some((largest, largest.rss?))) else { return Some(first) };
    let whose = if count > 1 { format!(" of {}", largest.pid) } else { String::new() };
    let other = if samplers::has_go_profile(profile, largest) {
        "free memory and tables of Go's runtime"
    } else if growth.is_some() {
        "free memory of the heap"
    } else {
        "blocks from before the trace"
    };
    Some(format!("{first} {}", rest(profile, largest, rss, &whose, other)))
}

fn unexplained(live: Bytes, rss: &ResidentSet) -> u64 {
    rss.end.0.saturating_sub(live.0)
}

/// Returns a sentence about the part of a process's RSS that its blocks do not explain. `other`: memory of the heap that the
/// part may consist of.
fn rest(profile: &Profile, process: &ProcessProfile, rss: ResidentSet, whose: &str, other: &str) -> String {
    let (pid, live) = (process.pid, process.total.live().bytes);
    let explain = format!("`memtrace explain --pid {pid}` shows the rest");
    if rss.shared.0 as f64 >= unexplained(live, &rss) as f64 * MOST {
        let shared = rss.shared;
        return format!(
            "Shared memory{whose} is {shared}: `memtrace faults --pid {pid} --by memory` shows the code that touches it."
        );
    }
    let runtime = rss.runtime.filter(|runtime| *runtime != Runtime::Go || !samplers::has_go_profile(profile, process));
    match runtime {
        None => format!("{explain}{whose}: {other}, files, stacks."),
        Some(Runtime::Python) => format!(
            "Python keeps its objects of up to 512 bytes in arenas of its own: restart with PYTHONMALLOC=malloc to trace them, \
             or use tracemalloc. {explain}{whose}."
        ),
        Some(Runtime::Ruby) => {
            format!("Ruby keeps its objects in pages of its own: use ObjectSpace.dump_all. {explain}{whose}.")
        }
        Some(Runtime::Node) => format!(
            "JavaScript objects are in the heap of V8: take a heap snapshot (node --heapsnapshot-signal=SIGUSR2). \
             {explain}{whose}."
        ),
        Some(Runtime::Java) => format!(
            "Java objects are in the heap of the JVM: use `jcmd {pid} GC.heap_info`, and for the rest `jcmd {pid} \
             VM.native_memory`. {explain}{whose}."
        ),
        Some(Runtime::Go) => format!(
            "Go has a heap of its own: use `go tool pprof` with net/http/pprof, or `memtrace faults --pid {pid}`. \
             {explain}{whose}."
        ),
        Some(Runtime::Erlang) => format!("Erlang has heaps of its own: use erlang:memory(). {explain}{whose}."),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::{
        Amount, Part, Pid, Quantities, RunFacts, SampleSource, Sampler, Samplers, StackEnd, StackProfile, Variance,
    };

    use super::*;

    const MIB: u64 = 1 << 20;

    fn process(pid: u32, live: u64, rss: ResidentSet) -> ProcessProfile {
        let live = Amount { bytes: Bytes(live), count: 1 };
        let total = Quantities::default().with_amount(Quantity::LiveBytes, live);
        ProcessProfile { total, rss: Some(rss), ..ProcessProfile::new(Pid(pid), "server") }
    }

    fn resident(start: Option<u64>, end: u64) -> ResidentSet {
        ResidentSet { start: start.map(Bytes), end: Bytes(end), shared: Bytes(0), runtime: None }
    }

    fn sentences_of(processes: Vec<ProcessProfile>) -> Option<String> {
        sentences(&Profile { processes, ..Profile::default() })
    }

    #[test]
    fn rss_without_blocks_of_the_trace_leads_to_explain() {
        let text = sentences_of(vec![process(7, 9 << 10, resident(Some(499 * MIB), 512 * MIB))]).unwrap();
        let expected = "The RSS is 512.00 MiB (+13.00 MiB); the 9.00 KiB of live blocks explain at most <0.1% of the growth. \
             `memtrace explain --pid 7` shows the rest: free memory of the heap, files, stacks.";
        assert_eq!(text, expected);
    }

    #[test]
    fn blocks_that_explain_the_growth_need_no_further_command() {
        let grown = process(7, 18 * MIB, resident(Some(82 * MIB), 100 * MIB));
        // The other process has given memory back, so its blocks explain no growth.
        let shrunk = process(9, 50 * MIB, resident(Some(81 * MIB), 80 * MIB));
        let text = sentences_of(vec![grown.clone()]).unwrap();
        let expected =
            "The RSS is 100.00 MiB (+18.00 MiB); the 18.00 MiB of live blocks explain at most 100% of the growth.";
        assert_eq!(text, expected);
        let profile = Profile { processes: vec![grown, shrunk.clone()], ..Profile::default() };
        let expected = "RSS 180.00 MiB (+17.00 MiB), at most 100% of the growth explained";
        assert_eq!(phrase(&profile).as_deref(), Some(expected));
        let text = sentences_of(vec![shrunk]).unwrap();
        assert!(text.contains("(-1.00 MiB); the 50.00 MiB of live blocks explain at most 62.5% of it. `"), "{text}");
    }

    /// Returns the profile of a process with 64 samples from a sampler. Each stands for 1 MiB, with the variance 2^40.
    fn sampled_profile(source: SampleSource, rss: ResidentSet) -> Profile {
        let live = Amount { bytes: Bytes(64 * MIB), count: 64 };
        let mut usage = Quantities::of_blocks([live, live, Amount::default()])
            .with(Quantity::HeldSamples, 64)
            .with(Quantity::AllocSamples, 64);
        usage.add_variance(Variance::HeldBytes, 64 << 40);
        let mut samplers = Samplers::default();
        samplers.add(Pid(7), Sampler { source, interval: Some(Bytes(MIB)) });
        Profile {
            run: RunFacts { samplers, ..RunFacts::default() },
            processes: vec![process(7, 64 * MIB, rss)],
            stacks: vec![StackProfile { usage, ..StackProfile::new(0, Part::WHOLE, [].into(), StackEnd::NotTaken) }],
            ..Profile::default()
        }
    }

    #[test]
    fn estimates_are_said_to_be_estimates() {
        // Half of the width is 1.96·√(64 + 0.9604) MiB = 15.80 MiB.
        let profile = sampled_profile(SampleSource::Jemalloc, resident(Some(10 * MIB), 90 * MIB));
        let expected = "The RSS is 90.00 MiB (+80.00 MiB); the estimated 64.00 MiB ± 15.80 MiB of live blocks explain \
             at most about 80.0% of the growth. `memtrace explain --pid 7` shows the rest: free memory of the heap, \
             files, stacks.";
        assert_eq!(sentences(&profile).as_deref(), Some(expected));
        let expected = "RSS 90.00 MiB (+80.00 MiB), at most about 80.0% of the growth explained";
        assert_eq!(phrase(&profile).as_deref(), Some(expected));
        // The RSS is within the interval of the live bytes.
        let profile = sampled_profile(SampleSource::Jemalloc, resident(None, 60 * MIB));
        assert!(!sentences(&profile).unwrap().contains("not resident"));
        let profile = sampled_profile(SampleSource::Jemalloc, resident(None, 40 * MIB));
        assert!(sentences(&profile).unwrap().contains("not resident"));
    }

    #[test]
    fn blocks_of_a_go_profile_can_be_older_than_the_trace() {
        let rss = ResidentSet { runtime: Some(Runtime::Go), ..resident(Some(90 * MIB), 100 * MIB) };
        let mut profile = sampled_profile(SampleSource::Go, rss);
        let text = sentences(&profile).unwrap();
        let expected = "The RSS is 100.00 MiB (+10.00 MiB); the estimated 64.00 MiB ± 15.80 MiB of live blocks explain \
             at most about 64.0% of it. `memtrace explain --pid 7` shows the rest: free memory and tables of Go's \
             runtime, files, stacks.";
        assert_eq!(text, expected);
        // With too many processes, samplers are known without their process.
        profile.run.samplers = Samplers::default();
        profile.run.samplers.add_of_unknown(Sampler { source: SampleSource::Go, interval: Some(Bytes(MIB)) });
        assert!(sentences(&profile).is_some_and(|text| text.contains("64.0% of it.")));
    }

    #[test]
    fn a_part_of_the_live_blocks_is_not_compared() {
        let mut profile =
            Profile { processes: vec![process(7, MIB, resident(Some(MIB), 2 * MIB))], ..Profile::default() };
        assert!(sentences(&profile).is_some());
        profile.run.older = Some(Duration::from_secs(5));
        assert_eq!((sentences(&profile), phrase(&profile)), (None, None));
    }

    #[test]
    fn explained_rss_needs_no_further_command() {
        let text = sentences_of(vec![process(7, 95 * MIB, resident(None, 100 * MIB))]).unwrap();
        assert_eq!(text, "The RSS is 100.00 MiB; the 95.00 MiB of live blocks explain at most 95.0% of it.");
    }

    #[test]
    fn blocks_that_are_not_resident_explain_no_rss_of_others() {
        let text =
            sentences_of(vec![process(7, 90 * MIB, resident(None, MIB)), process(9, MIB, resident(None, 99 * MIB))]);
        let text = text.unwrap();
        assert!(text.contains("the 91.00 MiB of live blocks explain at most 2.0% of it. A part"), "{text}");
        assert!(text.contains("`memtrace explain --pid 9`"), "{text}");
    }

    #[test]
    fn largest_unexplained_process_is_named() {
        let shared = ResidentSet { shared: Bytes(80 * MIB), ..resident(Some(MIB), 100 * MIB) };
        let text = sentences_of(vec![process(7, MIB, resident(Some(MIB), 2 * MIB)), process(9, MIB, shared)]).unwrap();
        let start = "The RSS of 2 processes, with shared pages once for each, is 102.00 MiB (+100.00 MiB);";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("Shared memory of 9 is 80.00 MiB"), "{text}");
    }

    #[test]
    fn runtimes_have_tools_of_their_own() {
        for runtime in Runtime::ALL {
            let tool = match runtime {
                Runtime::Python => "PYTHONMALLOC=malloc",
                Runtime::Ruby => "ObjectSpace.dump_all",
                Runtime::Node => "--heapsnapshot-signal",
                Runtime::Java => "jcmd 7 GC.heap_info",
                Runtime::Go => "net/http/pprof",
                Runtime::Erlang => "erlang:memory()",
            };
            let rss = ResidentSet { runtime: Some(runtime), ..resident(None, 100 * MIB) };
            let text = sentences_of(vec![process(7, MIB, rss)]).unwrap();
            assert!(text.contains(tool) && text.contains("memtrace explain --pid 7"), "{text}");
        }
    }
}
