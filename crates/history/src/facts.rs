//! Facts of a run that are not totals, as rows of a history.

mod go_profiles;
mod patched;
mod reclaim;
mod row;
mod samplers;
mod tag_functions;
mod untraced;

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{
    AccountKeys, AllocatorId, Amount, Bytes, CgroupId, Cost, DebugFileCounts, DebugFileOutcome, EventClass, GroupBy,
    Metric, PatchedProcess, ProgramCost, Quantity, RaisedMinSize, RunFacts, Samplers, TagFormat, TagFunctionCalls,
    TagId, TagName, Tick, TouchWindow, Untraced, WorkingSetMethod,
};

pub use self::go_profiles::{GoProfileMoments, main_thread_note, of_changed_go_profiles};
pub use self::samplers::of_changed_samplers;

use self::row::{duration, number, text};
use super::interval::{Fact, FactValue};

const RUN: &str = "run";
const NOTE: &str = "note";
const ALLOCATOR: &str = "allocator";
const TAG_NAME: &str = "tag_name";
const TAG_NUMBER: &str = "tag_number";
const KILLED_CGROUP: &str = "killed_cgroup";
const FILTERED: &str = "filtered";
const DEBUG_FILES: &str = "debug_files";
const TOUCHES: &str = "touches";

/// Grouping of the stacks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedGrouping {
    pub by: GroupBy,
    /// Text of the rules for tags.
    pub tags: Option<String>,
    /// True if blocks have the tags that targets set.
    pub program_tags: bool,
    /// Format of tags that are numbers, if one was chosen.
    pub tag_format: Option<TagFormat>,
}

/// Returns the facts that are known when a run starts.
pub fn at_start(subject: &str, start: Tick, grouping: &RecordedGrouping, metric: Option<Metric>) -> Vec<Fact> {
    let mut facts = vec![
        text(RUN, "subject", subject),
        duration(RUN, "start_ns", start.since_start()),
        text(RUN, "by", grouping.by.name()),
    ];
    facts.extend(grouping.tags.as_ref().map(|rules| text(RUN, "tags", rules)));
    facts.extend(grouping.program_tags.then(|| text(RUN, "program_tags", "recorded")));
    facts.extend(grouping.tag_format.map(of_tag_format));
    facts.extend(metric.map(|metric| text(RUN, "metric", metric.name())));
    facts
}

/// Returns the format of tags that are numbers.
pub fn of_tag_format(format: TagFormat) -> Fact {
    text(RUN, "tag_format", format.name())
}

/// Returns the fact that accounts by `keys` are recorded.
pub fn of_accounts(keys: &AccountKeys) -> Fact {
    let names: Vec<&str> = keys.iter().map(|key| key.name()).collect();
    text(RUN, "accounts_by", &names.join(","))
}

/// Returns the fact that all processes of the run have started in it.
pub fn of_started_targets() -> Fact {
    text(RUN, "from_start", "yes")
}

/// Returns the fact that the allocated bytes of spans are recorded.
pub fn of_span_bytes() -> Fact {
    text(RUN, "span_bytes", "recorded")
}

/// Returns the facts about a minimum size that is raised during the run.
pub fn of_raised(RaisedMinSize { at, min_size }: RaisedMinSize) -> [Fact; 2] {
    [duration(RUN, "raised_ns", at), number(RUN, "raised_bytes", min_size.0)]
}

/// Returns the facts that are known when the run ends. `end`: end of tracing. `run`: duration of tracing.
pub fn at_end(end: Tick, run: Duration) -> [Fact; 2] {
    [duration(RUN, "end_ns", end.since_start()), duration(RUN, "duration_ns", run)]
}

/// Returns the notes of a report, except for notes that each report of a recording makes again.
pub fn of_notes(notes: &[String]) -> Vec<Fact> {
    let notes = notes.iter().filter(|note| !go_profiles::is_of_report(note));
    // Leading zeros keep the order of the notes, because items are sorted as text.
    notes.enumerate().map(|(index, note)| text(NOTE, format!("{index:04}"), note)).collect()
}

/// Returns the facts of one event class, without its notes, debug files and cost.
pub fn of_class(run: &RunFacts) -> Vec<Fact> {
    let mut facts = Vec::new();
    facts.extend(run.allocators.iter().map(|(id, name)| text(ALLOCATOR, id.0.to_string(), name)));
    facts.extend(run.tags.iter().map(|(id, tag)| match tag {
        TagName::Number(value) => number(TAG_NUMBER, id.0.to_string(), *value),
        TagName::Text(name) => text(TAG_NAME, id.0.to_string(), name),
    }));
    facts.extend(samplers::facts(&run.samplers));
    facts.extend(patched::facts(&run.patched));
    facts.extend(tag_functions::facts(&run.tag_functions));
    facts.extend(of_killed_cgroups(&run.killed_cgroups));
    if run.filtered != Amount::default() {
        facts.extend([number(FILTERED, "bytes", run.filtered.bytes.0), number(FILTERED, "count", run.filtered.count)]);
    }
    facts.extend(untraced::facts(run.class, &run.untraced));
    facts.extend(run.reclaim.iter().flat_map(reclaim::of_machine));
    for (&id, (path, memory)) in &run.cgroups {
        facts.extend(reclaim::of_cgroup(id, &path.to_string_lossy(), memory));
    }
    if let Some(TouchWindow { method, duration: time }) = run.touches {
        facts.extend([text(TOUCHES, "method", method.name()), duration(TOUCHES, "duration_ns", time)]);
    }
    facts
}

/// Returns the paths of the cgroups of OOM kills.
pub fn of_killed_cgroups(paths: &BTreeMap<CgroupId, String>) -> Vec<Fact> {
    paths.iter().map(|(id, path)| text(KILLED_CGROUP, id.number().to_string(), path)).collect()
}

/// Returns the number of debug files with each outcome of the search, and the downloaded bytes.
pub fn of_debug_files(counts: &DebugFileCounts) -> Vec<Fact> {
    let outcomes = DebugFileOutcome::ALL.into_iter();
    let counts_of_outcomes = outcomes.map(|outcome| number(DEBUG_FILES, outcome.name(), counts.count(outcome)));
    counts_of_outcomes.chain([number(DEBUG_FILES, "downloaded_bytes", counts.downloaded.0)]).collect()
}

/// Returns the cost of tracing, as the report on an event class shows it.
pub fn of_cost(class: EventClass, cost: &Cost) -> Vec<Fact> {
    let Cost { events, nested, cpu, cpu_tracing, peak_rss, programs } = *cost;
    let topic = cost_of(class);
    let mut facts = vec![
        number(topic, "events", events),
        number(topic, "nested", nested),
        duration(topic, "cpu_ns", cpu),
        duration(topic, "cpu_tracing_ns", cpu_tracing),
        number(topic, "peak_rss_bytes", peak_rss.0),
    ];
    if let Some(ProgramCost { hits, time }) = programs {
        facts.extend([number(topic, "program_hits", hits), duration(topic, "program_ns", time)]);
    }
    facts
}

const fn cost_of(class: EventClass) -> &'static str {
    match class {
        EventClass::Heap => "cost_heap",
        EventClass::Map => "cost_map",
        EventClass::Fault => "cost_fault",
        EventClass::Reclaim => "cost_reclaim",
    }
}

/// Facts that were read from a recording.
#[derive(Clone, Debug, Default)]
pub struct RecordedFacts(BTreeMap<String, BTreeMap<String, FactValue>>);

impl RecordedFacts {
    pub fn new(facts: Vec<Fact>) -> Self {
        let mut read = Self::default();
        read.add(facts);
        read
    }

    /// Adds facts that replace earlier ones with the same topic and item.
    pub fn add(&mut self, facts: impl IntoIterator<Item = Fact>) {
        for Fact { topic, item, value } in facts {
            self.0.entry(topic.into_owned()).or_default().insert(item.into_owned(), value);
        }
    }

    /// Returns the description of the traced processes for titles.
    pub fn subject(&self) -> &str {
        self.text(RUN, "subject").unwrap_or("recording")
    }

    /// Returns the start of tracing, and its end if the run has ended.
    pub fn span(&self) -> (Tick, Option<Tick>) {
        let tick = |item| self.duration(RUN, item).map(Tick::at);
        (tick("start_ns").unwrap_or_default(), tick("end_ns"))
    }

    /// Returns the duration of tracing, if the run has ended.
    pub fn run(&self) -> Option<Duration> {
        self.duration(RUN, "duration_ns")
    }

    /// Returns the grouping of the run.
    pub fn grouping(&self) -> RecordedGrouping {
        let name = self.text(RUN, "by");
        RecordedGrouping {
            by: GroupBy::ALL.iter().copied().find(|key| name == Some(key.name())).unwrap_or_default(),
            tags: self.text(RUN, "tags").map(str::to_owned),
            program_tags: self.text(RUN, "program_tags").is_some(),
            tag_format: self.tag_format(),
        }
    }

    fn tag_format(&self) -> Option<TagFormat> {
        self.text(RUN, "tag_format").and_then(TagFormat::from_name)
    }

    /// Returns true if the allocated bytes of spans are recorded.
    pub(crate) fn has_slice_bytes(&self) -> bool {
        self.text(RUN, "span_bytes").is_some()
    }

    /// Returns the keys of the recorded accounts; `None` if there are no accounts.
    pub fn account_keys(&self) -> Option<AccountKeys> {
        let named = |name| GroupBy::ALL.iter().copied().find(|key| key.name() == name);
        let keys: Option<Vec<_>> = self.text(RUN, "accounts_by")?.split(',').map(named).collect();
        keys.map(AccountKeys::from)
    }

    /// Returns the metric of the run, if it was chosen.
    pub fn metric(&self) -> Option<Metric> {
        let name = self.text(RUN, "metric")?;
        Metric::from_name(name)
    }

    /// Returns the notes of the run's report.
    pub fn notes(&self) -> Vec<String> {
        let notes = self.topic(NOTE).filter_map(|(_, value)| match value {
            FactValue::Text(note) => Some(note.clone()),
            FactValue::Number(_) => None,
        });
        notes.collect()
    }

    /// Returns the recorded facts of `class`, except facts that are measured at the end of the run: patched processes, touches,
    /// calls of functions that change tags, reclaim and memory of cgroups.
    pub fn of_class(&self, class: EventClass) -> RunFacts {
        let texts = |topic| {
            self.topic(topic).filter_map(|(item, value)| match value {
                FactValue::Text(text) => Some((item.parse::<u64>().ok()?, text.clone())),
                FactValue::Number(_) => None,
            })
        };
        let allocator = |(id, name)| Some((AllocatorId(u16::try_from(id).ok()?), name));
        let allocators = texts(ALLOCATOR).filter_map(allocator).filter(|_| class.probes_allocators());
        let id = |item: &str| item.parse().ok().map(TagId);
        let tag_names = self.topic(TAG_NAME).filter_map(|(item, value)| match value {
            FactValue::Text(name) => Some((id(item)?, TagName::Text(name.clone()))),
            FactValue::Number(_) => None,
        });
        let tag_numbers = self.topic(TAG_NUMBER).filter_map(|(item, value)| match value {
            FactValue::Number(number) => Some((id(item)?, TagName::Number(*number))),
            FactValue::Text(_) => None,
        });
        let tags = tag_names.chain(tag_numbers).filter(|_| class.probes_allocators());
        let filtered = |item| self.number(FILTERED, item).filter(|_| class.probes_allocators()).unwrap_or_default();
        RunFacts {
            class,
            from_start: self.text(RUN, "from_start").is_some(),
            samplers: if class.probes_allocators() { self.samplers() } else { Samplers::default() },
            allocators: allocators.collect(),
            tags: tags.collect(),
            tag_format: self.tag_format(),
            killed_cgroups: texts(KILLED_CGROUP).filter_map(|(id, path)| Some((CgroupId::of(id)?, path))).collect(),
            filtered: Amount { bytes: Bytes(filtered("bytes")), count: filtered("count") },
            raised: self.raised().filter(|_| class.probes_allocators()),
            debug_files: self.debug_files(),
            untraced: self.untraced(class),
            cost: self.cost(cost_of(class)),
            ..RunFacts::default()
        }
    }

    /// Returns the facts of [`Self::of_class`], and the facts that are measured when the run ends.
    pub(crate) fn of_class_at_end(&self, class: EventClass) -> RunFacts {
        let touches = self.touches().filter(|_| Quantity::ColdBytes.is_of(class));
        let tag_functions = if class.probes_allocators() { self.tag_functions() } else { Vec::new() };
        let patched = if class.probes_allocators() { self.patched() } else { Vec::new() };
        let facts = RunFacts { touches, tag_functions, patched, ..self.of_class(class) };
        if !class.counts_stalls() {
            return facts;
        }
        let topic = |name| self.0.get(name);
        let machine = |numbers| reclaim::machine(numbers, topic(reclaim::THREAD), topic(reclaim::MISSING));
        RunFacts {
            reclaim: topic(reclaim::MACHINE).map(machine),
            cgroups: topic(reclaim::CGROUP).map(reclaim::cgroups).unwrap_or_default(),
            ..facts
        }
    }

    fn samplers(&self) -> Samplers {
        let mut samplers = Samplers::default();
        for (item, value) in self.topic(samplers::TOPIC) {
            if let FactValue::Text(text) = value {
                samplers::add(&mut samplers, item, text);
            }
        }
        samplers
    }

    fn patched(&self) -> Vec<PatchedProcess> {
        // Items are sorted as text, and their numbers have leading zeros.
        let processes = self.topic(patched::TOPIC).filter_map(|(_, value)| match value {
            FactValue::Text(text) => patched::read(text),
            FactValue::Number(_) => None,
        });
        processes.collect()
    }

    /// Returns the moments of Go's own profiles.
    pub(crate) fn go_profiles(&self) -> GoProfileMoments {
        go_profiles::read(self.0.get(go_profiles::MOMENTS), self.0.get(go_profiles::OLDER))
    }

    /// Returns the calls of the functions that change tags.
    pub fn tag_functions(&self) -> Vec<TagFunctionCalls> {
        // Items are sorted as text, and their numbers have leading zeros.
        let functions = self.topic(tag_functions::TOPIC).filter_map(|(_, value)| match value {
            FactValue::Text(text) => tag_functions::read(text),
            FactValue::Number(_) => None,
        });
        functions.collect()
    }

    fn raised(&self) -> Option<RaisedMinSize> {
        let min_size = Bytes(self.number(RUN, "raised_bytes")?);
        Some(RaisedMinSize { at: self.duration(RUN, "raised_ns")?, min_size })
    }

    fn debug_files(&self) -> Option<DebugFileCounts> {
        let downloaded = self.number(DEBUG_FILES, "downloaded_bytes")?;
        let mut counts = DebugFileCounts::default();
        counts.downloaded.0 += downloaded;
        for outcome in DebugFileOutcome::ALL {
            counts.add_many(outcome, self.number(DEBUG_FILES, outcome.name()).unwrap_or_default());
        }
        Some(counts)
    }

    /// Returns true if the hot and cold bytes at the end of the run are known.
    pub fn has_touches(&self) -> bool {
        self.touches().is_some()
    }

    fn touches(&self) -> Option<TouchWindow> {
        let name = self.text(TOUCHES, "method")?;
        let method = WorkingSetMethod::ALL.iter().copied().find(|method| method.name() == name)?;
        Some(TouchWindow { method, duration: self.duration(TOUCHES, "duration_ns")? })
    }

    fn untraced(&self, class: EventClass) -> Untraced {
        let texts = |topic| {
            self.topic(topic).filter_map(|(item, value)| match value {
                FactValue::Text(text) => Some((item.as_str(), text.as_str())),
                FactValue::Number(_) => None,
            })
        };
        let [sums, processes] = untraced::topics(class);
        untraced::read(texts(sums), texts(processes).map(|(_, text)| text))
    }

    /// Returns the cost of the run; `None` if it is not recorded, because the run has not ended.
    fn cost(&self, topic: &str) -> Option<Cost> {
        let events = self.number(topic, "events")?;
        let number = |item| self.number(topic, item).unwrap_or_default();
        let duration = |item| self.duration(topic, item).unwrap_or_default();
        let programs = |hits| ProgramCost { hits, time: duration("program_ns") };
        Some(Cost {
            events,
            nested: number("nested"),
            cpu: duration("cpu_ns"),
            cpu_tracing: duration("cpu_tracing_ns"),
            peak_rss: Bytes(number("peak_rss_bytes")),
            programs: self.number(topic, "program_hits").map(programs),
        })
    }

    fn topic(&self, topic: &str) -> impl Iterator<Item = (&String, &FactValue)> {
        self.0.get(topic).into_iter().flatten()
    }

    fn text(&self, topic: &str, item: &str) -> Option<&str> {
        match self.0.get(topic)?.get(item)? {
            FactValue::Text(text) => Some(text),
            FactValue::Number(_) => None,
        }
    }

    fn number(&self, topic: &str, item: &str) -> Option<u64> {
        match self.0.get(topic)?.get(item)? {
            FactValue::Number(number) => Some(*number),
            FactValue::Text(_) => None,
        }
    }

    fn duration(&self, topic: &str, item: &str) -> Option<Duration> {
        self.number(topic, item).map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{
        Comm, KernelThread, MachineReclaim, MemcgMemory, Nanoseconds, PerSecond, Pid, PressureTime, ReclaimActivity,
        ReclaimKind, SampleSource, Sampler, TestedArgument, UntracedProcess, UntracedReason, VmCounters,
    };

    use super::*;

    fn untraced(pid: u32, comm: &str, exe: Option<&str>, rss: Option<u64>) -> UntracedProcess {
        let (pid, comm, exe) = (Pid(pid), Comm::from(comm), exe.map(Into::into));
        UntracedProcess { pid, comm, exe, reason: UntracedReason::Go, rss: rss.map(Bytes) }
    }

    #[test]
    fn facts_are_read_as_they_were_recorded() {
        let mut counts = DebugFileCounts::default();
        counts.downloaded.0 += 7;
        counts.add(DebugFileOutcome::NotFound);
        let tested = TestedArgument { argument: 1, values: vec![(0, 5), (u32::MAX, 6)], others: 7 };
        let function = |rule: &str, tested| TagFunctionCalls { rule: rule.into(), calls: 18, effective: 3, tested };
        let mut samplers = Samplers::default();
        samplers.add(Pid(7), Sampler { source: SampleSource::Go, interval: Some(Bytes(512 << 10)) });
        samplers.add(Pid(12), Sampler { source: SampleSource::OtelMemory, interval: None });
        for interval in [None, Some(Bytes(1024)), Some(Bytes(2048))] {
            samplers.add_of_unknown(Sampler { source: SampleSource::Jemalloc, interval });
        }
        let patched = |pid, comm: &str, gaps: &[&str]| PatchedProcess {
            pid: Pid(pid),
            comm: Comm::from(comm),
            functions: 4,
            gaps: gaps.iter().copied().map(String::from).collect(),
            allocated: Some(Bytes(1 << 33)),
            exact: true,
            samples: 70_000,
            not_inserted: 0,
            level: 2,
            stop: Duration::from_micros(450),
            rewound: 1,
        };
        let run = RunFacts {
            class: EventClass::Heap,
            samplers,
            patched: vec![patched(12, "b c", &["memalign: no site", "valloc: no site"]), patched(7, "a", &[])],
            tag_format: Some(TagFormat::Hex),
            tag_functions: vec![
                function("set=ns::f(int, char)(id=arg0,if=arg1==7)", Some(tested)),
                function("set=g(id=arg0,if=arg0==1)", Some(TestedArgument::default())),
                function("leave=h", None),
            ],
            allocators: BTreeMap::from([(AllocatorId(3), String::from("libpool.so"))]),
            killed_cgroups: CgroupId::of(99).map(|id| (id, String::from("/a"))).into_iter().collect(),
            filtered: Amount { bytes: Bytes(64), count: 2 },
            raised: Some(RaisedMinSize { at: Duration::from_secs(2), min_size: Bytes(128) }),
            debug_files: Some(counts),
            touches: Some(TouchWindow { method: WorkingSetMethod::Idle, duration: Duration::from_millis(9) }),
            untraced: Untraced::new(vec![
                untraced(8, "a b  c", Some("/usr/bin/a b"), Some(4096)),
                untraced(9, "", None, None),
            ]),
            cost: Some(Cost {
                events: 1,
                nested: 2,
                cpu: Duration::from_millis(3),
                cpu_tracing: Duration::from_millis(4),
                peak_rss: Bytes(5),
                programs: Some(ProgramCost { hits: 6, time: Duration::from_micros(7) }),
            }),
            ..RunFacts::default()
        };
        let (start, end) = (Tick(1000), Tick(5000));
        let rules = String::from("[[rule]]\ntag = 'a'\nfunction = 'f'");
        let tag_format = Some(TagFormat::Hex);
        let grouping = RecordedGrouping { by: GroupBy::Tag, tags: Some(rules), program_tags: true, tag_format };
        let mut facts = at_start("pid 7 (a)", start, &grouping, Some(Metric::AllocBytes));
        facts.extend(at_end(end, Duration::from_secs(4)));
        facts.extend(of_class(&run));
        facts.extend(run.raised.into_iter().flat_map(of_raised));
        facts.extend(run.debug_files.iter().flat_map(of_debug_files));
        facts.extend(run.cost.iter().flat_map(|cost| of_cost(run.class, cost)));
        let notes: Vec<_> = (0..12).map(|number| format!("note {number}")).collect();
        facts.extend(of_notes(&notes));
        let read = RecordedFacts::new(facts);
        assert_eq!((read.subject(), read.span(), read.grouping()), ("pid 7 (a)", (start, Some(end)), grouping));
        assert_eq!((read.run(), read.metric()), (Some(Duration::from_secs(4)), Some(Metric::AllocBytes)));
        assert_eq!((read.of_class_at_end(EventClass::Heap), read.notes()), (run, notes));
        assert_eq!(read.of_class(EventClass::Heap).touches, None, "touches are measured when the run ends");
        assert!(read.of_class(EventClass::Heap).patched.is_empty(), "the bytes are counted until the run ends");
        assert!(read.of_class_at_end(EventClass::Fault).patched.is_empty(), "only blocks are sampled so");
        assert_eq!(read.of_class(EventClass::Fault).cost, None, "no cost of this class is recorded");
        assert!(read.of_class(EventClass::Heap).tag_functions.is_empty(), "calls are counted until the run ends");
        assert!(read.of_class_at_end(EventClass::Fault).tag_functions.is_empty(), "only blocks have these tags");
        assert_eq!(read.of_class(EventClass::Fault).allocators, BTreeMap::new(), "only heap events have allocators");
        assert_eq!(read.of_class(EventClass::Fault).raised, None, "only blocks have a minimum size");
        assert_eq!(read.of_class(EventClass::Fault).samplers, Samplers::default(), "only blocks have samplers");
    }

    #[test]
    fn reclaim_is_read_as_it_was_recorded() {
        let activity = |first: u64| ReclaimActivity {
            times: first,
            time: Nanoseconds(first + 1),
            scanned: first + 2,
            reclaimed: first + 3,
            ..ReclaimActivity::default()
        };
        let direct = ReclaimActivity { scanned_active: 5, taken: 6, deactivated: 7, written: 8, ..activity(10) };
        let seconds = PerSecond { all: 9, scanning: 4, paging: 2 };
        let pressure = |full| PressureTime { some: Duration::from_millis(20), full };
        let machine = MachineReclaim {
            efforts: BTreeMap::from([(ReclaimKind::Direct, direct), (ReclaimKind::Kswapd, activity(0))]),
            threads: vec![KernelThread { name: "kswapd 0".into(), work: ReclaimKind::Kswapd, effort: activity(30) }],
            counters: VmCounters {
                scanned: 1,
                machine_reclaim: 9,
                reclaimed: 2,
                refaults: 3,
                swapped_in: 4,
                swapped_out: 5,
                major_faults: 6,
                oom_kills: 7,
                kswapd_runs: 8,
            },
            seconds,
            pressure: Some(pressure(Some(Duration::from_millis(3)))),
            missing: vec!["mm_vmscan_throttled".into()],
        };
        let full = MemcgMemory {
            version_2: true,
            limit: Some(Bytes(64)),
            high: Some(Bytes(32)),
            current: Some(Bytes(16)),
            watched: Duration::from_secs(5),
            refaults: Some(77),
            pressure: Some(pressure(None)),
            seconds,
        };
        let id = |number| CgroupId::of(number).unwrap();
        let cgroups = BTreeMap::from([(id(8), ("/a b.c".into(), full)), (id(9), ("/".into(), MemcgMemory::default()))]);
        let run = RunFacts { class: EventClass::Reclaim, reclaim: Some(machine), cgroups, ..RunFacts::default() };
        let read = RecordedFacts::new(of_class(&run));
        assert_eq!(read.of_class_at_end(EventClass::Reclaim), run);
        assert_eq!(
            read.of_class(EventClass::Reclaim).reclaim,
            None,
            "the reclaim of an earlier moment is not recorded"
        );
        assert_eq!(read.of_class_at_end(EventClass::Heap).reclaim, None);
    }

    #[test]
    fn recording_of_a_killed_run_has_defaults() {
        let read = RecordedFacts::new(Vec::new());
        assert_eq!((read.span(), read.run(), read.grouping()), ((Tick(0), None), None, RecordedGrouping::default()));
        assert_eq!(read.of_class(EventClass::Heap), RunFacts::default());
    }
}
