use memtrace_model::{
    CgroupEvents, CgroupLimit, CgroupMemory, GoMemory, GoProfile, GoSizes, GoSource, GoTotals, HeapMemory, HeapSource,
    HeapStats, Pid, Pressure, Runtime, Stalled, StatusCounters, ThreadStacks,
};

use super::painter::Weight;
use super::*;

const MIB: u64 = 1 << 20;

/// Returns the explanation of a process with an RSS of 100 MiB, all of it heap in use.
fn page() -> Explanation {
    let held = MemorySizes { reserved: Bytes(100 * MIB), resident: Bytes(100 * MIB), ..MemorySizes::default() };
    let stats = HeapStats { in_use_resident: Bytes(100 * MIB), blocks: 7, arenas: 1, ..HeapStats::default() };
    Explanation {
        pid: Pid(7),
        comm: "a".into(),
        exe: "/bin/a".into(),
        runtime: None,
        threads: 1,
        counted: StatusCounters { rss: Bytes(100 * MIB), ..StatusCounters::default() },
        before: None,
        heap: HeapMemory { allocator: Some(String::from("glibc")), held, source: HeapSource::Known(stats) },
        go: None,
        anonymous: Vec::new(),
        main_stack: MemorySizes::default(),
        thread_stacks: ThreadStacks::default(),
        files: Vec::new(),
        shmem: Vec::new(),
        special: MemorySizes::default(),
        hugetlb: MemorySizes::default(),
        kinds: Vec::new(),
        pss: Bytes(100 * MIB),
        cgroup: None,
        pressure: None,
        file_timeouts: 0,
    }
}

fn said(page: &Explanation) -> Vec<String> {
    advice::conclusions(page).into_iter().map(|advice| advice.text).collect()
}

/// Returns the first conclusion and its command, for an explanation without a heap that `change` modifies.
fn first_of(change: impl Fn(&mut Explanation)) -> (String, Option<String>) {
    let mut page = page();
    page.heap = HeapMemory::default();
    change(&mut page);
    let advice = advice::conclusions(&page).remove(0);
    (advice.text, advice.command)
}

const fn resident(mib: u64) -> MemorySizes {
    let size = Bytes(mib * MIB);
    MemorySizes { reserved: size, resident: size, swap: Bytes(0), huge: Bytes(0), returnable: Bytes(0) }
}

#[test]
fn a_healthy_heap_gets_one_sentence_with_a_command() {
    let advice = advice::conclusions(&page());
    let [one] = &advice[..] else { panic!("{advice:?}") };
    assert!(one.text.starts_with("100% of the RSS (100.00 MiB) is heap in use."), "{one:?}");
    assert_eq!(one.command.as_deref(), Some("sudo memtrace --pid 7 -d 1m"));
}

#[test]
fn the_largest_part_is_named() {
    let named = |name: &str| vec![NamedMemory { name: name.into(), mappings: 1, held: resident(100) }];
    let file = |copied| vec![FileMemory { path: "/a".into(), held: resident(100), copied: Bytes(copied * MIB) }];
    let first = |change: &dyn Fn(&mut Explanation)| first_of(change).0;
    assert!(first(&|page| page.anonymous = named("arena")).contains("without malloc, most of it arena."));
    assert!(first(&|page| page.files = file(0)).contains("reclaims them when memory is short"));
    assert!(first(&|page| page.files = file(60)).contains("60.0% of the RSS (60.00 MiB) is private copies"));
    assert!(first(&|page| page.shmem = named("/memfd:a")).contains("this process has 100.00 MiB in all (PSS)"));
    assert!(first(&|page| page.main_stack = resident(100)).contains("is stacks"));
}

#[test]
fn tool_of_the_runtime_is_named() {
    let anonymous = NamedMemory { name: "without a name".into(), mappings: 1, held: resident(100) };
    let first = |runtime: Option<Runtime>| {
        first_of(|page| {
            page.anonymous = vec![anonymous.clone()];
            page.runtime = runtime;
        })
        .0
    };
    for runtime in Runtime::ALL {
        let tool = match runtime {
            Runtime::Python => "tracemalloc",
            Runtime::Ruby => "ObjectSpace.dump_all",
            Runtime::Node => "--heapsnapshot-signal",
            Runtime::Java => "GC.heap_info",
            Runtime::Go => "`go tool pprof` with net/http/pprof",
            Runtime::Erlang => "erlang:memory()",
        };
        let text = first(Some(runtime));
        assert!(text.contains(tool) && !text.contains("Heaps of runtimes"), "{text}");
    }
    assert!(first(None).contains("Heaps of runtimes (JavaScript, Java, Go, .NET)"));
}

#[test]
fn part_without_a_command_ends_with_a_next_step() {
    let steps = |change: &dyn Fn(&mut Explanation)| {
        let mut page = page();
        page.heap.held = MemorySizes::default();
        page.heap.source = HeapSource::default();
        change(&mut page);
        let advice = advice::conclusions(&page);
        let last = advice.last().unwrap();
        assert!(last.text.starts_with("If the RSS grows, run `memtrace explain` again."), "{advice:?}");
        assert!(advice[..advice.len() - 1].iter().all(|one| one.command.is_none()), "{advice:?}");
        last.command.clone().unwrap()
    };
    let files = || vec![FileMemory { path: "/a".into(), held: resident(100), copied: Bytes(0) }];
    assert_eq!(steps(&|page| page.files = files()), "sudo memtrace --pid 7 -d 1m");
    let go = |page: &mut Explanation| {
        page.files = files();
        page.runtime = Some(Runtime::Go);
    };
    assert_eq!(steps(&go), "sudo memtrace faults --pid 7 -d 1m");
    assert_eq!(steps(&|page| page.main_stack = resident(100)), "sudo memtrace faults --pid 7 -d 1m");
}

#[test]
fn an_unreadable_heap_is_explained_once() {
    let mut page = page();
    page.heap.source = HeapSource::Unknown(String::from("jemalloc keeps no marks"));
    let said = said(&page);
    let [one] = &said[..] else { panic!("{said:?}") };
    assert!(one.contains("is unknown, since jemalloc keeps no marks."), "{one}");
    // The heap is mentioned even if it is not the largest part.
    page.heap.held = resident(10);
    page.main_stack = resident(90);
    assert_eq!(advice::conclusions(&page)[1].text, "The part of the heap in use is unknown: jemalloc keeps no marks.");
}

#[test]
fn free_heap_memory_is_a_warning_and_no_leak() {
    let mut page = page();
    let HeapSource::Known(stats) = &mut page.heap.source else { unreachable!() };
    stats.in_use_resident = Bytes(30 * MIB);
    stats.trimmable = Bytes(60 * MIB);
    stats.arenas = 4;
    let said = said(&page);
    assert!(
        said[0].starts_with("70.0% of the RSS (70.00 MiB) is free heap memory") && said[0].contains("no leak"),
        "{said:?}"
    );
    assert!(said[1].contains("malloc_trim(3) returns at least 60.00 MiB of it; with 4 arenas"), "{said:?}");
}

#[test]
fn a_near_limit_comes_first_as_an_alarm() {
    let mut page = page();
    let limit = |current| CgroupLimit { path: "/a".into(), most: Bytes(100 * MIB), current: Bytes(current * MIB) };
    page.cgroup = Some(CgroupMemory { limit: Some(limit(89)), ..CgroupMemory::default() });
    assert_eq!(said(&page).len(), 1);
    page.cgroup = Some(CgroupMemory { limit: Some(limit(95)), ..CgroupMemory::default() });
    let advice = advice::conclusions(&page);
    assert_eq!(advice[0].weight, Weight::Alarm);
    assert!(advice[0].text.starts_with("The control group /a uses 95.0% of its limit: 95.00 MiB of 100.00 MiB."));
}

#[test]
fn oom_kills_and_shared_pages_lead_to_other_commands() {
    let mut page = page();
    page.pss = Bytes(10 * MIB);
    let events = CgroupEvents { oom_kill: Some(2), ..CgroupEvents::default() };
    page.cgroup = Some(CgroupMemory { path: "/a".into(), events, ..CgroupMemory::default() });
    let advice = advice::conclusions(&page);
    assert!(advice[0].text.starts_with("The OOM killer has killed 2 processes of the control group /a"), "{advice:?}");
    assert!(advice[0].text.contains("`dmesg -T`, `journalctl -k`"), "{advice:?}");
    let commands: Vec<_> = advice.iter().take(2).map(|advice| advice.command.as_deref().unwrap()).collect();
    let record = "sudo memtrace record --cgroup /a --wait -o oom.memtrace";
    assert_eq!(commands, [record, "sudo memtrace reclaim --all"]);
    assert!(advice[3].text.contains("the share of this process is 10.00 MiB (PSS)"), "{advice:?}");
    assert!(advice[3].text.contains("--children, --comm or --cgroup"), "{advice:?}");
}

#[test]
fn path_in_a_command_is_quoted_for_the_shell() {
    let events = CgroupEvents { oom_kill: Some(1), ..CgroupEvents::default() };
    let group = CgroupMemory { path: "/a".into(), events, ..CgroupMemory::default() };
    for (given, word) in [
        ("system.slice/web@1.service", "system.slice/web@1.service"),
        (r"system-a\x2db.slice", r"'system-a\x2db.slice'"),
        ("it's $(here)", r"'it'\''s $(here)'"),
        ("a\n\x1b", "'a\u{fffd}\u{fffd}'"),
    ] {
        let advice = advice::oom_kills(&group, given);
        let record = format!("sudo memtrace record --cgroup {word} --wait -o oom.memtrace");
        assert_eq!(advice[0].command.as_deref(), Some(record.as_str()));
    }
}

#[test]
fn reads_that_were_given_up_are_said_first() {
    let late = Explanation { file_timeouts: 2, ..page() };
    let first = &said(&late)[0];
    assert!(first.starts_with("2 reads were given up (file_timeout)"), "{first}");
    assert!(first.contains("incomplete"), "{first}");
}

#[test]
fn swap_pressure_reservations_and_doubts_are_mentioned() {
    let mut page = page();
    page.counted.swap = Bytes(MIB);
    page.counted.virtual_size = Bytes(2 << 30);
    let waited = Stalled { minute: 7.5, ..Stalled::default() };
    page.pressure = Some(Pressure { some: waited, full: None });
    page.counted.rss = Bytes(110 * MIB);
    let advice = said(&page);
    assert_eq!(advice[1], "1.00 MiB more is swapped out: the process has 111.00 MiB in all.");
    assert!(advice[2].starts_with("The machine's tasks stalled on memory 7.50% of the last minute"), "{advice:?}");
    assert!(advice[3].starts_with("2.00 GiB is mapped and 110.00 MiB of it resident"), "{advice:?}");
    assert!(advice[4].starts_with("The unexplained part"), "{advice:?}");
    page.before = Some(Bytes(90 * MIB));
    assert!(said(&page)[4].starts_with("The RSS went from 90.00 MiB to 110.00 MiB during the analysis"));
}

#[test]
fn a_process_without_memory_has_a_page() {
    let mut page = page();
    page.heap = HeapMemory::default();
    page.counted = StatusCounters::default();
    assert_eq!(said(&page), [""; 0]);
    let mut bytes = Vec::new();
    write_text(&page, PageOptions { top: 5, colour: false, columns: 100 }, &mut bytes).unwrap();
    assert!(String::from_utf8(bytes).unwrap().contains("RSS 0 B, of which 100% is explained"));
}

#[test]
fn json_is_read_as_it_was_written() {
    let mut bytes = Vec::new();
    write_json(&page(), &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let read: memtrace_json::Explanation<'static> = crate::json_lines::assert_round_trip(&text);
    assert_eq!(read.rss_bytes, page().counted.rss.0);
}

/// Returns the explanation of a Go program with an RSS of 100 MiB. `in_use`, `idle`: MiB of spans in use and of idle spans, all
/// resident. 10 MiB of the spans in use are free.
fn go_page(in_use: u64, idle: u64, profile: GoProfile) -> Explanation {
    let mib = |number: u64| Bytes(number * MIB);
    let totals = GoTotals {
        objects: mib(in_use - 10),
        in_use: mib(in_use),
        idle: mib(idle),
        released: mib(30),
        stacks: mib(6),
        thread_stacks: mib(1),
        work_buffers: mib(2),
        spans: mib(3),
        caches: Bytes(15_600),
        profile_tables: Bytes(1_444_032),
        collector: mib(4),
        other: mib(5),
    };
    let sizes = GoSizes {
        totals,
        heap: MemorySizes { reserved: mib(in_use + idle + 30), returnable: mib(idle), ..resident(in_use + idle) },
        stacks: resident(6),
        own: resident(8),
        in_use_resident: mib(in_use),
        idle_resident: mib(idle),
    };
    let source = GoSource::Known(Box::new(sizes));
    Explanation {
        runtime: Some(Runtime::Go),
        heap: HeapMemory::default(),
        go: Some(GoMemory { version: Some(String::from("go1.27.3")), source, profile }),
        ..page()
    }
}

fn commands(page: &Explanation) -> Vec<String> {
    advice::conclusions(page).into_iter().filter_map(|advice| advice.command).collect()
}

#[test]
fn memory_of_go_is_a_tree() {
    let page = go_page(50, 20, GoProfile::Readable);
    let all = rss_parts::list(&page);
    let shown = |part: &rss_parts::Part| {
        let [reserved, returnable] =
            part.beyond.map(|sizes| [sizes.reserved, sizes.returnable].map(|size| size.0 / MIB))?;
        Some((part.name.clone(), part.kind.is_inner(), part.resident.0 / MIB, reserved, returnable))
    };
    let expected = [
        ("heap of Go", false, 70, 100, 20),
        ("in use", true, 40, 40, 0),
        ("free in spans", true, 10, 10, 0),
        ("idle", true, 20, 20, 20),
        ("released", true, 0, 30, 0),
        ("stacks of goroutines", false, 6, 6, 0),
        ("Go runtime's own", false, 8, 8, 0),
    ];
    let expected = expected.map(|(name, is_inner, resident, reserved, returnable)| {
        Some((String::from(name), is_inner, resident, reserved, returnable))
    });
    assert_eq!(all.iter().map(shown).take(7).collect::<Vec<_>>(), expected);
    assert_eq!(all[7].name, "other anonymous memory", "a Go program without C code has no other heap");
    assert_eq!(page.held().resident, Bytes(84 * MIB));
    // With C code, the heap of the C library is the first part.
    let with_c = Explanation { heap: self::page().heap, ..page };
    let names: Vec<_> = rss_parts::list(&with_c).into_iter().map(|part| part.name).collect();
    assert_eq!(names[..4], ["heap of glibc", "in use", "free, kept by the allocator", "heap of Go"]);
}

#[test]
fn idle_spans_are_in_the_table_without_swapped_memory() {
    let mut bytes = Vec::new();
    let options = PageOptions { top: 5, colour: false, columns: 100 };
    write_text(&go_page(50, 20, GoProfile::Readable), options, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let row = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("heap of Go"), "heap of Go 70.00 MiB 70.0% ####### 20.00 MiB 100.00 MiB 0 B");
    assert_eq!(row("idle"), "idle 20.00 MiB 20.0% -- 20.00 MiB 20.00 MiB");
    assert_eq!(row("released"), "released 0 B 0% 0 B 30.00 MiB");
    let totals = "Go totals of go1.27.3, touched or not: HeapInuse 50.00 MiB, HeapIdle 50.00 MiB,";
    assert!(row("Go  ").starts_with(totals), "{text}");
}

#[test]
fn objects_of_go_lead_to_its_profile() {
    let page = go_page(70, 10, GoProfile::Readable);
    let first = &said(&page)[0];
    assert!(first.starts_with("60.0% of the RSS (60.00 MiB) is objects of Go's heap"), "{first}");
    assert_eq!(commands(&page), ["sudo memtrace --pid 7 -d 1m"], "no page faults if the profile can be read");
    let page = go_page(70, 10, GoProfile::Off);
    assert!(said(&page)[0].contains("build it with runtime/pprof or net/http/pprof"), "{:?}", said(&page));
    assert_eq!(commands(&page), ["sudo memtrace faults --pid 7 -d 1m"]);
    let page = go_page(70, 10, GoProfile::Unreadable(String::from("its version is not known")));
    assert!(said(&page)[0].contains("cannot read its heap profile: its version is not known."), "{:?}", said(&page));
    assert_eq!(commands(&page), ["sudo memtrace faults --pid 7 -d 1m"]);
}

#[test]
fn idle_memory_of_go_leads_to_its_settings() {
    let page = go_page(20, 60, GoProfile::Readable);
    let first = &said(&page)[0];
    for setting in ["60.0% of the RSS (60.00 MiB) is idle", "GOGC", "GOMEMLIMIT", "debug.FreeOSMemory()"] {
        assert!(first.contains(setting), "{first}");
    }
    let command =
        "sudo memtrace record --pid 7 -d 5m -o run.memtrace && memtrace report run.memtrace --from +10s -m alloc-bytes";
    assert_eq!(commands(&page), [command]);
    // Idle memory is a warning if it is not the largest part.
    let advice = &advice::conclusions(&go_page(60, 20, GoProfile::Readable))[1];
    assert_eq!(advice.weight, Weight::Warning);
    assert!(advice.text.starts_with("20.00 MiB (20.0%) is idle memory of Go's heap."), "{advice:?}");
    assert!(!said(&go_page(60, 15, GoProfile::Readable))[1].contains("idle"), "15 MiB are not much");
}

#[test]
fn untouched_objects_of_go_may_be_idle_memory() {
    let untouched = |in_use_resident: u64, idle_resident: u64| {
        let mut page = go_page(60, 20, GoProfile::Readable);
        let Some(GoSource::Known(sizes)) = page.go.as_mut().map(|go| &mut go.source) else {
            panic!("the totals are known")
        };
        sizes.in_use_resident = Bytes(in_use_resident * MIB);
        sizes.idle_resident = Bytes(idle_resident * MIB);
        said(&page).into_iter().find(|text| text.contains("may be idle memory instead"))
    };
    assert!(untouched(40, 0).is_some_and(|text| text.starts_with("Up to 20.00 MiB of Go's memory in use")));
    assert_eq!(untouched(60, 20), None, "all spans are resident");
    assert_eq!(untouched(60, 0), None, "only idle spans are not resident");
    assert_eq!(untouched(45, 0), None, "15 MiB are not much");
}

#[test]
fn unknown_totals_of_go_have_a_reason() {
    let unknown = |profile| {
        let mut page = go_page(50, 20, profile);
        page.anonymous = vec![NamedMemory { name: "without a name".into(), mappings: 1, held: resident(90) }];
        if let Some(go) = &mut page.go {
            go.source = GoSource::Unknown(String::from("the totals contradict each other"));
        }
        page
    };
    let page = unknown(GoProfile::Readable);
    assert_eq!(said(&page)[1], "The parts of Go's memory are unknown: the totals contradict each other.");
    assert_eq!(commands(&page), ["sudo memtrace --pid 7 -d 1m"]);
    assert_eq!(rss_parts::list(&page)[0].name, "heap (brk)");
    assert_eq!(page.held().resident, Bytes(90 * MIB));
    assert_eq!(commands(&unknown(GoProfile::Off)), ["sudo memtrace faults --pid 7 -d 1m"]);
}

#[test]
fn totals_of_go_are_in_the_json() {
    let json = |page: &Explanation| {
        let mut bytes = Vec::new();
        write_json(page, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let read: memtrace_json::Explanation<'static> = crate::json_lines::assert_round_trip(&text);
        read.go.unwrap()
    };
    let mut page = go_page(50, 20, GoProfile::Off);
    let go = json(&page);
    assert_eq!((go.version.as_deref(), go.not_told, &*go.profile), (Some("go1.27.3"), None, "off"));
    let totals = go.totals.unwrap();
    assert_eq!((totals.heap_alloc_bytes, totals.heap_in_use_bytes), (40 * MIB, 50 * MIB));
    assert_eq!(
        (totals.heap_idle_bytes, totals.heap_released_bytes, totals.heap_sys_bytes),
        (50 * MIB, 30 * MIB, 100 * MIB)
    );
    assert_eq!((totals.stack_in_use_bytes, totals.stack_sys_bytes), (6 * MIB, 7 * MIB));
    assert_eq!((totals.mspan_sys_bytes, totals.mcache_sys_bytes), (3 * MIB, 15_600));
    assert_eq!(
        (totals.buck_hash_sys_bytes, totals.gc_sys_bytes, totals.other_sys_bytes),
        (1_444_032, 6 * MIB, 5 * MIB)
    );
    // 100 MiB of heap, 7 of stacks, 3 of spans, 6 of the collector, 5 of other data, and the bytes of caches and profiles.
    assert_eq!(totals.sys_bytes, 121 * MIB + 15_600 + 1_444_032);
    assert_eq!(
        (go.heap.resident_bytes, go.heap.returnable_bytes, go.own.resident_bytes),
        (70 * MIB, 20 * MIB, 8 * MIB)
    );
    if let Some(go) = &mut page.go {
        go.source = GoSource::Unknown(String::from("why"));
        go.profile = GoProfile::Unreadable(String::from("because"));
    }
    let go = json(&page);
    assert_eq!((go.totals, go.heap.reserved_bytes, go.not_told.as_deref()), (None, 0, Some("why")));
    assert_eq!((&*go.profile, go.profile_not_told.as_deref()), ("unreadable", Some("because")));
}
