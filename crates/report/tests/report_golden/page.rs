//! The explanation of a service near its limit, with memory of every kind and with hostile names.

use memtrace_model::{
    Bytes, CgroupLimit, CgroupMemory, Explanation, FileMemory, HeapMemory, HeapSource, HeapStats, MappingKind,
    MemoryCounters, MemorySizes, NamedMemory, Pid, Pressure, Stalled, StatusCounters, ThreadStacks, Tid,
};
use memtrace_report::{PageOptions, write_explanation_json, write_explanation_text};

use super::assert_golden;

const MIB: u64 = 1 << 20;

const fn mib(number: u64) -> Bytes {
    Bytes(number * MIB)
}

const fn held(reserved: u64, resident: u64) -> MemorySizes {
    MemorySizes {
        reserved: mib(reserved),
        resident: mib(resident),
        swap: Bytes(0),
        huge: Bytes(0),
        returnable: Bytes(0),
    }
}

fn named(name: &str, mappings: u32, held: MemorySizes) -> NamedMemory {
    NamedMemory { name: name.into(), mappings, held }
}

fn file(path: &str, held: MemorySizes, copied: Bytes) -> FileMemory {
    FileMemory { path: path.into(), held, copied }
}

/// Returns an explanation of 990 MiB of an RSS of 1000 MiB.
fn page() -> Explanation {
    let waited = |minute| Stalled { ten_seconds: 9.5, minute, five_minutes: 1.0, total: Default::default() };
    let heap = MemorySizes { swap: mib(20), huge: mib(64), returnable: mib(180), ..held(1800, 700) };
    Explanation {
        pid: Pid(4711),
        comm: "sess\x1b[31mions".into(),
        exe: "/srv/bin/sessions".into(),
        runtime: None,
        threads: 9,
        counted: StatusCounters {
            rss: mib(1000),
            anonymous: mib(850),
            file: mib(100),
            shmem: mib(50),
            peak: mib(1200),
            virtual_size: mib(6000),
            swap: mib(20),
            page_tables: mib(3),
        },
        before: None,
        heap: HeapMemory {
            allocator: Some("glibc".into()),
            held: heap,
            source: HeapSource::Known(HeapStats {
                in_use: mib(520),
                blocks: 1_234_567,
                mapped: mib(120),
                mapped_blocks: 17,
                free: mib(1270),
                trimmable: mib(180),
                own: Bytes(4711),
                arenas: 9,
                in_use_resident: mib(500),
                undetermined: Bytes(0),
            }),
        },
        go: None,
        anonymous: vec![
            named("without a name", 12, held(3000, 120)),
            named("ring\nbuffers", 3, held(12, 8)),
            named("reserved and not accessible", 4, held(500, 0)),
        ],
        main_stack: held(8, 1),
        thread_stacks: ThreadStacks { held: held(64, 11), stacks: 8, largest: Some((Tid(4715), mib(9))) },
        files: vec![
            file(
                "/srv/lib/a/very/long/path/that/does/not/fit/into/a/line/of/this/page/libsessions.so.1",
                held(90, 60),
                mib(30),
            ),
            file("/srv/bin/sessions", MemorySizes { returnable: mib(35), ..held(60, 40) }, mib(5)),
            file("/usr/lib/x86_64-linux-gnu/libc.so.6", held(2, 0), Bytes(0)),
        ],
        shmem: vec![named("/memfd:pool", 1, held(64, 50))],
        special: MemorySizes { reserved: Bytes(36864), resident: Bytes(0), ..MemorySizes::default() },
        hugetlb: held(512, 256),
        kinds: vec![(MappingKind::Anonymous, held(5500, 800)), (MappingKind::File, held(152, 100))],
        pss: mib(960),
        cgroup: Some(CgroupMemory {
            path: "/system.slice/sessions.service".into(),
            current: mib(1180),
            limit: Some(CgroupLimit { path: "/system.slice".into(), most: mib(1280), current: mib(1200) }),
            counters: MemoryCounters { anonymous: Some(mib(860)), file: Some(mib(310)), ..MemoryCounters::default() },
            pressure: Some(Pressure { some: waited(12.25), full: Some(waited(3.5)) }),
            ..CgroupMemory::default()
        }),
        pressure: Some(Pressure { some: waited(14.0), full: None }),
        file_timeouts: 0,
    }
}

fn page_text(page: &Explanation, colour: bool) -> String {
    let mut bytes = Vec::new();
    write_explanation_text(page, PageOptions { top: 5, colour, columns: 100 }, &mut bytes)
        .expect("a vector takes everything");
    String::from_utf8(bytes).expect("reports are UTF-8")
}

#[test]
fn the_text_of_an_explanation_is_as_it_was() {
    assert_golden("explain.txt", &page_text(&page(), false));
}

#[test]
fn the_json_of_an_explanation_is_as_it_was() {
    let mut bytes = Vec::new();
    write_explanation_json(&page(), &mut bytes).expect("a vector takes everything");
    let json = String::from_utf8(bytes).expect("reports are UTF-8");
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_golden("explain.json", &json.replace(&version, "\"version\":\"VERSION\""));
}

/// Colours only add to the text. Without colours, no name controls the terminal or adds a line.
#[test]
fn the_explanation_fits_a_hundred_columns_without_colours() {
    let plain = page_text(&page(), false);
    let coloured = page_text(&page(), true);
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, behind)) = rest.split_once('\x1b') {
        stripped += before;
        rest = behind.split_once('m').expect("a colour ends").1;
    }
    assert_eq!(stripped + rest, plain);
    assert_ne!(coloured, plain);
    assert!(plain.chars().all(|letter| letter == '\n' || !letter.is_control()), "{plain}");
    assert!(plain.lines().all(|line| line.chars().count() <= 100), "{plain}");
}

/// The parts of the chart without subparts, and the unexplained part, add up to the RSS.
#[test]
fn the_page_adds_up() {
    let page = page();
    let held = page.held();
    assert_eq!(held.resident, Bytes(990 << 20));
    assert_eq!(page.unexplained(held), 10 << 20);
    assert_eq!(page.explained(), 0.99);
    let more = Explanation { counted: StatusCounters { rss: Bytes(900 << 20), ..page.counted }, ..page.clone() };
    assert_eq!(more.unexplained(held), -(90 << 20));
    assert_eq!(more.explained(), 0.9);
    let nothing = Explanation { counted: StatusCounters::default(), ..page };
    assert_eq!(nothing.explained(), 1.0);
}
