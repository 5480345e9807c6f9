//! Sentences about the RSS of the traced processes, and about the part of the RSS that traced blocks explain.

use memtrace_model::format as number;
use memtrace_model::{Bytes, EventClass, ProcessProfile, Profile, ResidentSet, Runtime};

use crate::format;

/// If the blocks explain at least this share of the RSS, the rest needs no sentence.
const EXPLAINED: f64 = 0.9;

/// If shared memory is at least this share of the unexplained RSS, the sentence names shared memory as the reason.
const MOST: f64 = 0.5;

/// Live bytes and RSS of all processes that run at the end.
struct Sum<'a> {
    live: Bytes,
    /// Upper bound of the part of the RSS that consists of live blocks, summed over the processes. Not all live blocks
    /// need be resident, and blocks of one process explain no RSS of another.
    explained: Bytes,
    rss: ResidentSet,
    /// Number of the processes.
    count: u64,
    /// Process with the largest part of the RSS that its blocks do not explain; `None` if all are in groups.
    largest: Option<&'a ProcessProfile>,
}

impl Sum<'_> {
    /// Returns the largest possible share of live blocks in the RSS, from 0 to 1.
    fn share(&self) -> f64 {
        self.explained.0 as f64 / self.rss.end.0.max(1) as f64
    }
}

/// Returns the sum; `None` if no traced process runs at the end.
fn sum(profile: &Profile) -> Option<Sum<'_>> {
    if profile.run.class != EventClass::Heap || profile.run.window.is_some() {
        return None;
    }
    let known = || profile.processes.iter().filter_map(|process| Some((process, process.rss?)));
    let single = known().filter(|(process, _)| process.group.is_none());
    let largest = single.max_by_key(|(process, rss)| unexplained(process.total.live().bytes, rss));
    Some(Sum {
        live: Bytes(known().map(|(process, _)| process.total.live().bytes.0).sum()),
        explained: Bytes(known().map(|(process, rss)| process.total.live().bytes.0.min(rss.end.0)).sum()),
        rss: known().map(|(_, rss)| rss).reduce(ResidentSet::plus)?,
        count: known().map(|(process, _)| process.runs()).sum(),
        largest: largest.map(|(process, _)| process),
    })
}

/// Returns a phrase for the titles of pictures: `RSS 512.00 MiB, at most <0.1% of it explained`.
pub(super) fn phrase(profile: &Profile) -> Option<String> {
    let sum = sum(profile)?;
    Some(format!("RSS {}, at most {} of it explained", sum.rss.end, number::percent(sum.share())))
}

/// Returns sentences for reports; `None` if no traced process runs at the end.
pub(super) fn sentences(profile: &Profile) -> Option<String> {
    let sum = sum(profile)?;
    let (share, Sum { live, explained, rss, count, largest }) = (sum.share(), sum);
    let growth = rss.start.map(|start| format!(" ({})", format::change(Bytes(rss.end.0.wrapping_sub(start.0)))));
    let growth = growth.unwrap_or_default();
    let of = match count {
        1 => String::from("The RSS is"),
        count => format!("The RSS of {count} processes, with shared pages once for each, is"),
    };
    let percent = number::percent(share);
    let mut first = format!("{of} {}{growth}; the {live} of live blocks explain at most {percent} of it.", rss.end);
    if explained < live {
        first.push_str(" A part of the live blocks is not resident.");
    }
    if share >= EXPLAINED {
        return Some(first);
    }
    let Some((largest, rss)) = largest.and_then(|largest| Some((largest, largest.rss?))) else { return Some(first) };
    let whose = if count > 1 { format!(" of {}", largest.pid) } else { String::new() };
    Some(format!("{first} {}", rest(largest, largest.total.live().bytes, rss, &whose)))
}

fn unexplained(live: Bytes, rss: &ResidentSet) -> u64 {
    rss.end.0.saturating_sub(live.0)
}

/// Returns a sentence about the part of a process's RSS that its blocks do not explain.
fn rest(process: &ProcessProfile, live: Bytes, rss: ResidentSet, whose: &str) -> String {
    let pid = process.pid;
    let explain = format!("`memtrace explain --pid {pid}` shows the rest");
    if rss.shared.0 as f64 >= unexplained(live, &rss) as f64 * MOST {
        let shared = rss.shared;
        return format!(
            "Shared memory{whose} is {shared}: `memtrace faults --pid {pid} --by memory` shows the code that touches it."
        );
    }
    match rss.runtime {
        None => format!("{explain}{whose}: blocks from before the trace, files, stacks."),
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
    use memtrace_model::{Amount, Pid, Quantities, Quantity};

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
        let expected = "The RSS is 512.00 MiB (+13.00 MiB); the 9.00 KiB of live blocks explain at most <0.1% of it. \
             `memtrace explain --pid 7` shows the rest: blocks from before the trace, files, stacks.";
        assert_eq!(text, expected);
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
