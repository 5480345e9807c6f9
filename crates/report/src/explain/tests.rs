use memtrace_model::{
    CgroupEvents, CgroupLimit, CgroupMemory, HeapMemory, HeapSource, HeapStats, Pid, Pressure, Runtime, Stalled,
    StatusCounters, ThreadStacks,
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
