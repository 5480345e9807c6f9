//! Draws conclusions from an explanation, and suggests commands. A warning about incomplete parts comes first, then an
//! alarm about a cgroup limit, then the conclusion about the largest part.

use std::io;

use memtrace_model::format as number;
use memtrace_model::{
    Bytes, CgroupLimit, CgroupMemory, Explanation, GoMemory, GoProfile, GoSource, HeapSource, Pressure, Runtime,
};

use super::painter::{Painter, Weight};
use super::rss_parts::{self, PartKind, share};
use crate::text::text_writer::TextWriter;

/// Conclusion of a few sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) weight: Weight,
    pub(super) text: String,
    /// Command that the user can run next.
    pub(super) command: Option<String>,
}

/// Minimum free heap memory for a conclusion: share of the RSS, and size. Both must be reached.
pub(super) const MUCH_FREE: (f64, Bytes) = (0.1, Bytes(16 << 20));
/// Minimum RSS for a conclusion about shared pages.
const MUCH_SHARED: Bytes = Bytes(16 << 20);
/// A control group is near its limit if it uses at least this share of the limit.
const NEAR_LIMIT: f64 = 0.9;
/// Minimum memory pressure for a conclusion, in percent of the last minute.
const MUCH_PRESSURE: f64 = 5.0;
/// The unexplained share of the RSS must exceed this for a conclusion.
const UNEXPLAINED: f64 = 0.03;
/// Minimum reserved memory for a conclusion: multiple of the RSS, and size. Both must be reached.
const MUCH_RESERVED: (u64, Bytes) = (4, Bytes(1 << 30));

/// Returns all conclusions, ordered as in the text.
pub(super) fn conclusions(page: &Explanation) -> Vec<Advice> {
    let group = page.cgroup.as_ref();
    let mut all: Vec<Advice> = timeouts(page).into_iter().chain(group.and_then(limit)).collect();
    all.extend(group.into_iter().flat_map(|group| oom_kills(group, &group.path)));
    let most = most(page);
    let kind = most.as_ref().map(|(kind, _)| *kind);
    all.extend(most.map(|(_, advice)| advice));
    all.extend(free(page));
    all.extend(go_idle(page).filter(|_| kind != Some(PartKind::GoIdle)));
    all.extend(go_estimate(page));
    all.extend(go_doubt(page));
    all.extend(heap_doubt(page).filter(|_| kind != Some(PartKind::HeapUndetermined)));
    all.extend(swap(page));
    all.extend(shared(page));
    let of_group = group.and_then(|group| group.pressure);
    all.extend(match of_group {
        Some(found) => pressure("Its control group's", found),
        None => page.pressure.and_then(|found| pressure("The machine's", found)),
    });
    all.extend(reserved(page));
    all.extend(doubt(page));
    if all.iter().all(|advice| advice.command.is_none()) {
        all.extend(kind.map(|kind| next_step(page, kind)));
    }
    all
}

/// Writes the section of the conclusions.
pub(super) fn write(all: &[Advice], painter: &Painter, out: &mut TextWriter<'_>) -> io::Result<()> {
    writeln!(out, "\n{}", painter.strong("Assessment"))?;
    for advice in all {
        let text = out.wrapped(&memtrace_model::plain(&advice.text), 4);
        writeln!(out, "  - {}", painter.by_weight(text.trim_start(), advice.weight))?;
        if let Some(command) = &advice.command {
            writeln!(out, "      {}", painter.strong(command))?;
        }
    }
    Ok(())
}

/// Returns true if `part` reaches the share of `whole` and the size.
pub(super) fn is_much(part: Bytes, whole: Bytes, (least_share, least): (f64, Bytes)) -> bool {
    share(part, whole) >= least_share && part >= least
}

pub(super) fn plain(text: String) -> Advice {
    Advice { weight: Weight::Plain, text, command: None }
}

pub(super) fn warning(text: String) -> Advice {
    Advice { weight: Weight::Warning, ..plain(text) }
}

/// Returns a warning that the parts are incomplete, if reads timed out.
fn timeouts(page: &Explanation) -> Option<Advice> {
    let reads = number::counted(page.file_timeouts, "read was", "reads were");
    (page.file_timeouts > 0).then(|| {
        warning(format!(
            "{reads} given up (file_timeout): a lock of the process or a file system did not answer in time. The parts of \
             the RSS are incomplete. Threads in the state D of `ps -L -p {}` wait for this file system.",
            page.pid
        ))
    })
}

/// Returns the kind of the largest part, and a conclusion with the next step for it.
fn most(page: &Explanation) -> Option<(PartKind, Advice)> {
    let rss = page.counted.rss;
    let all = rss_parts::list(page);
    let most = all.iter().filter(|part| !part.kind.has_subparts()).max_by_key(|part| part.resident)?;
    if most.resident.0 == 0 {
        return None;
    }
    let pid = page.pid;
    let lead = format!("{} of the RSS ({})", number::percent(share(most.resident, rss)), most.resident);
    let trace = Some(format!("sudo memtrace --pid {pid} -d 1m"));
    let touches = Some(format!("sudo memtrace faults --pid {pid} -d 1m"));
    let (text, command) = match most.kind {
        PartKind::HeapInUse => {
            (format!("{lead} is heap in use. To see the code that allocates and the memory that stays, run:"), trace)
        }
        PartKind::HeapUndetermined => {
            let why = match &page.heap.source {
                HeapSource::Unknown(why) => format!(", since {why}"),
                HeapSource::Known(_) => String::new(),
            };
            (
                format!(
                    "{lead} is the heap. The part in use is unknown{why}. To see the code that allocates from now on and \
                     the memory that stays, run:"
                ),
                trace,
            )
        }
        PartKind::HeapFree => (
            format!(
                "{lead} is free heap memory that the allocator keeps. It is no leak: usage had a peak, or blocks in use are \
                 scattered among free ones. To see the code that causes the peak, run:"
            ),
            Some(format!("sudo memtrace --pid {pid} -d 1m -m alloc-bytes")),
        ),
        PartKind::GoObjects | PartKind::GoFreeInSpans => go_in_use(page, most.kind, &lead),
        PartKind::GoIdle | PartKind::GoReleased => (
            format!(
                "{lead} is idle memory of Go's heap. It is no leak: the heap had a peak, or it grows between collections. \
                 debug.FreeOSMemory() returns the memory to the kernel. A lower GOGC, or a limit in GOMEMLIMIT, makes the \
                 peaks smaller.{}",
                if profile_is_readable(page) {
                    " To see the code that allocates most, without the objects from before, run:"
                } else {
                    ""
                }
            ),
            // The start of the trace is left out, because its changes include all objects that were live at that time.
            profile_is_readable(page).then(|| {
                format!(
                    "sudo memtrace record --pid {pid} -d 5m -o run.memtrace && memtrace report run.memtrace --from +10s -m alloc-bytes"
                )
            }),
        ),
        PartKind::GoStacks => (
            format!(
                "{lead} is stacks of goroutines: many goroutines, or deep recursion. /debug/pprof/goroutine of net/http/pprof \
                 has their number and their code."
            ),
            None,
        ),
        PartKind::GoOwn => (
            format!(
                "{lead} is data that Go's runtime keeps about spans and profiles, and for collections. It grows with the \
                 largest size of the heap, and does not become smaller."
            ),
            None,
        ),
        PartKind::Anonymous => {
            let name = page.anonymous.first().map_or("", |named| named.name.as_str());
            let hint = runtime(page).unwrap_or("Heaps of runtimes (JavaScript, Java, Go, .NET) are such memory.");
            let text = format!("{lead} is memory that the program maps without malloc, most of it {name}. {hint}");
            // If the totals of Go are unknown, the heap of Go is part of the anonymous memory.
            let is_heap_of_go = page.go.is_some() && rss_parts::go_sizes(page).is_none();
            if is_heap_of_go && profile_is_readable(page) {
                (format!("{text} To see the code that allocates, run:"), trace)
            } else {
                (format!("{text} To see the code that touches it, run:"), touches)
            }
        }
        PartKind::FilesClean => (
            format!(
                "{lead} is unmodified file pages: the kernel reclaims them when memory is short, and reads them again on access."
            ),
            None,
        ),
        PartKind::FilesCopied => {
            (format!("{lead} is private copies of written file pages; see the list of files."), None)
        }
        PartKind::Shmem => (
            format!(
                "{lead} is shared memory. It counts in the RSS of each process that maps it; with shared pages divided, this \
                 process has {} in all (PSS).",
                page.pss
            ),
            None,
        ),
        PartKind::ThreadStacks | PartKind::MainStack => {
            (format!("{lead} is stacks: deep recursion, or many threads ({}).", page.threads), None)
        }
        PartKind::Special | PartKind::Heap | PartKind::GoHeap | PartKind::Files => {
            (format!("{lead} is {}.", most.name), None)
        }
    };
    Some((most.kind, Advice { command, ..plain(text) }))
}

/// Returns the text and the command for a process whose largest part is objects of Go's heap, or free memory in its spans.
fn go_in_use(page: &Explanation, kind: PartKind, lead: &str) -> (String, Option<String>) {
    let what = match kind {
        PartKind::GoFreeInSpans => {
            "free memory between objects of Go's heap: it had more objects, which the collector has freed since"
        }
        _ => "objects of Go's heap, with those that the collector has not freed yet",
    };
    let pid = page.pid;
    match page.go.as_ref().map(|go| &go.profile) {
        Some(GoProfile::Readable) => (
            format!("{lead} is {what}. The program keeps a heap profile. To see the code that allocates, run:"),
            Some(format!("sudo memtrace --pid {pid} -d 1m")),
        ),
        Some(GoProfile::Off) => (
            format!(
                "{lead} is {what}. The program keeps no heap profile: build it with runtime/pprof or net/http/pprof. To see \
                 the code that touches new pages until then, run:"
            ),
            Some(format!("sudo memtrace faults --pid {pid} -d 1m")),
        ),
        Some(GoProfile::Unreadable(why)) => (
            format!(
                "{lead} is {what}. memtrace cannot read its heap profile: {why}. Use `go tool pprof` with net/http/pprof. To \
                 see the code that touches new pages, run:"
            ),
            Some(format!("sudo memtrace faults --pid {pid} -d 1m")),
        ),
        None => (format!("{lead} is {what}."), None),
    }
}

/// Returns true if memtrace can read the heap profile of a Go program.
fn profile_is_readable(page: &Explanation) -> bool {
    matches!(&page.go, Some(GoMemory { profile: GoProfile::Readable, .. }))
}

/// Returns the next step for a process whose largest part is of this kind, which has no command of its own.
fn next_step(page: &Explanation, kind: PartKind) -> Advice {
    let pid = page.pid;
    let is_touched =
        matches!(kind, PartKind::FilesCopied | PartKind::Shmem | PartKind::MainStack | PartKind::ThreadStacks);
    // A heap trace needs an allocator, or a profile of Go's heap.
    let has_heap = match page.runtime {
        Some(Runtime::Go) => profile_is_readable(page),
        _ => page.heap.allocator.is_some(),
    };
    let (code, command) = if is_touched || !has_heap {
        ("touches new pages", format!("sudo memtrace faults --pid {pid} -d 1m"))
    } else {
        ("allocates memory that stays", format!("sudo memtrace --pid {pid} -d 1m"))
    };
    let text = format!("If the RSS grows, run `memtrace explain` again. To see the code that {code}, run:");
    Advice { command: Some(command), ..plain(text) }
}

/// Returns a hint at tools of a language runtime.
fn runtime(page: &Explanation) -> Option<&'static str> {
    Some(match page.runtime? {
        Runtime::Python => {
            "Python keeps small objects there (pymalloc): use tracemalloc, or restart with PYTHONMALLOC=malloc and \
             trace."
        }
        Runtime::Node => {
            "JavaScript objects are there (V8): use process.memoryUsage() or a heap snapshot (node \
             --heapsnapshot-signal)."
        }
        Runtime::Java => {
            "Java objects are there: use jcmd PID GC.heap_info, and jcmd PID VM.native_memory for the rest."
        }
        Runtime::Ruby => "Ruby objects are there: use ObjectSpace.dump_all.",
        Runtime::Erlang => "Erlang processes are there: use erlang:memory().",
        Runtime::Go if profile_is_readable(page) => "Go has its heap there, and keeps a heap profile.",
        Runtime::Go => "Go has its heap there: use `go tool pprof` with net/http/pprof.",
    })
}

fn free(page: &Explanation) -> Option<Advice> {
    let all = rss_parts::list(page);
    let free = all.iter().find(|part| part.kind == PartKind::HeapFree)?;
    let rss = page.counted.rss;
    let HeapSource::Known(stats) = &page.heap.source else { return None };
    let arenas = match stats.arenas {
        0 | 1 => String::new(),
        arenas => format!("; with {arenas} arenas, fewer (MALLOC_ARENA_MAX=2) would keep less"),
    };
    is_much(free.resident, rss, MUCH_FREE).then(|| {
        warning(format!(
            "{} ({}) is free heap memory that glibc has not returned to the kernel: malloc_trim(3) returns at least {} of \
             it{arenas}.",
            free.resident,
            number::percent(share(free.resident, rss)),
            stats.trimmable
        ))
    })
}

/// Returns a warning if much memory of Go's heap is idle.
fn go_idle(page: &Explanation) -> Option<Advice> {
    let (idle, rss) = (rss_parts::go_sizes(page)?.idle_resident, page.counted.rss);
    is_much(idle, rss, MUCH_FREE).then(|| {
        warning(format!(
            "{idle} ({}) is idle memory of Go's heap. The runtime returns a part of it to the kernel over time; \
             debug.FreeOSMemory() returns it at once.",
            number::percent(share(idle, rss))
        ))
    })
}

/// Returns a note if much of the memory that counts as objects may be idle memory, because the program has not touched all objects.
fn go_estimate(page: &Explanation) -> Option<Advice> {
    let sizes = rss_parts::go_sizes(page)?;
    let untouched = sizes.totals.in_use.0.saturating_sub(sizes.in_use_resident.0);
    let doubtful = Bytes(untouched.min(sizes.totals.idle.0.saturating_sub(sizes.idle_resident.0)));
    is_much(doubtful, page.counted.rss, MUCH_FREE).then(|| {
        plain(format!(
            "Up to {doubtful} of Go's memory in use may be idle memory instead: not all of it is resident, and the runtime \
             counts spans, not pages."
        ))
    })
}

fn go_doubt(page: &Explanation) -> Option<Advice> {
    match &page.go.as_ref()?.source {
        GoSource::Unknown(why) => Some(plain(format!("The parts of Go's memory are unknown: {why}."))),
        GoSource::Known(_) => None,
    }
}

fn heap_doubt(page: &Explanation) -> Option<Advice> {
    match &page.heap.source {
        HeapSource::Unknown(why) if page.heap.held.resident.0 > 0 => {
            Some(plain(format!("The part of the heap in use is unknown: {why}.")))
        }
        HeapSource::Known(stats) if stats.undetermined.0 > 0 => Some(plain(format!(
            "The part in use of {} of the heap is unknown: the process changed it, or it is swapped out.",
            stats.undetermined
        ))),
        _ => None,
    }
}

fn swap(page: &Explanation) -> Option<Advice> {
    let swap = page.counted.swap;
    (swap.0 > 0).then(|| {
        warning(format!("{swap} more is swapped out: the process has {} in all.", Bytes(page.counted.rss.0 + swap.0)))
    })
}

/// Returns a hint at the other processes, if they share most of the RSS.
fn shared(page: &Explanation) -> Option<Advice> {
    let rss = page.counted.rss;
    (rss >= MUCH_SHARED && page.pss.0 < rss.0 / 2).then(|| {
        plain(format!(
            "Other processes map most of the RSS too: the share of this process is {} (PSS). `memtrace explain` with \
             --children, --comm or --cgroup adds the processes up, with each shared page once.",
            page.pss
        ))
    })
}

/// Returns an alarm if a control group is near its limit.
pub(super) fn limit(group: &CgroupMemory) -> Option<Advice> {
    let CgroupLimit { path, most, current } = group.limit.as_ref()?;
    let used = share(*current, *most);
    (used >= NEAR_LIMIT).then(|| Advice {
        weight: Weight::Alarm,
        text: format!(
            "The control group {path} uses {} of its limit: {current} of {most}. At the limit its processes stall in \
             reclaim, and the OOM killer kills one if nothing can be reclaimed.",
            number::percent(used)
        ),
        command: None,
    })
}

/// Returns a warning and the next steps if the OOM killer has killed processes of a control group. `given`: value for
/// `--cgroup`.
pub(super) fn oom_kills(group: &CgroupMemory, given: &str) -> Vec<Advice> {
    let kills = group.events.oom_kill.unwrap_or_default();
    if kills == 0 {
        return Vec::new();
    }
    let processes = number::counted(kills, "process", "processes");
    let text = format!(
        "The OOM killer has killed {processes} of the control group {} since the group was created. The parts of the \
         memory at that time are not known. The kernel log (`dmesg -T`, `journalctl -k`) has the time and the PID of \
         each kill. To record the stacks of the memory until the next kill, run:",
        group.path
    );
    let record = format!("sudo memtrace record --cgroup {} --wait -o oom.memtrace", shell_word(given));
    let stalls = plain(String::from("To see the stalls before the next kill, run in another terminal:"));
    vec![
        Advice { command: Some(record), ..warning(text) },
        Advice { command: Some(String::from("sudo memtrace reclaim --all")), ..stalls },
    ]
}

/// Returns a word for the command line of a shell, in quotes if it needs them. The names of systemd's units can have
/// backslashes.
fn shell_word(text: &str) -> String {
    let text = memtrace_model::plain(text);
    let is_literal = |letter: char| letter.is_ascii_alphanumeric() || "/._-:@+=,".contains(letter);
    if text.chars().all(is_literal) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Returns a warning if tasks stalled on memory. `whose`: their control group or machine, as a genitive.
pub(super) fn pressure(whose: &str, pressure: Pressure) -> Option<Advice> {
    let waited = pressure.some.minute;
    (waited >= MUCH_PRESSURE)
        .then(|| warning(format!("{whose} tasks stalled on memory {waited:.2}% of the last minute: memory is short.")))
}

fn reserved(page: &Explanation) -> Option<Advice> {
    let (times, least) = MUCH_RESERVED;
    let (rss, reserved) = (page.counted.rss, page.counted.virtual_size);
    (reserved >= least && reserved.0 / times >= rss.0).then(|| {
        plain(format!("{reserved} is mapped and {rss} of it resident: the rest is only reserved and takes no memory."))
    })
}

fn doubt(page: &Explanation) -> Option<Advice> {
    if let Some(before) = page.before {
        let rss = page.counted.rss;
        return Some(plain(format!(
            "The RSS went from {before} to {rss} during the analysis; run it again for another result."
        )));
    }
    (1.0 - page.explained() > UNEXPLAINED).then(|| {
        warning(String::from(
            "The unexplained part is the difference between the RSS counter and the mappings: from Linux 6.2 to 6.16 the counter can be \
             off by some pages per processor.",
        ))
    })
}
