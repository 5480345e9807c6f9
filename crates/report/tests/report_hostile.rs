//! Text from the target cannot control a terminal, break a format or add a line, in any report.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use harness::report::text as text_of;
use memtrace_model::{
    AllocatorId, Amount, BlockHistograms, Bytes, Cgroup, CgroupId, Container, EventClass, Explanation, FileMemory,
    Frame, FrameId, GoMemory, GoProfile, GoSource, GroupBy, HeapMemory, HeapSource, ImageId, LiveChanges, Location,
    MemcgProfile, MemorySizes, Metric, Name, NamedMemory, ObjectName, OomKill, Part, Pid, ProcessProfile, Profile,
    Quantities, Quantity, RunFacts, StackEnd, StackProfile, StatusCounters, ThreadStacks, Tick, Tid, User, VirtOffset,
};
use memtrace_report::{Format, Options, PageOptions, write, write_explanation_json, write_explanation_text};
use serde_json::Value;

/// Escape sequences (ESC and C1), line ends, direction marks, separators of folded stacks, and characters of XML.
const HOSTILE: &str =
    "a\u{1b}]0;b\u{7}c\nattached\r\0\t;d;<e>&\"'\u{7f}\u{85}\u{9b}31m\u{200f}\u{202e}f\u{2066}\u{2028}\u{feff}g";

/// Returns true for the characters of [`HOSTILE`] that no report may contain. Line ends and semicolons have a meaning
/// in reports.
fn is_forbidden(character: char) -> bool {
    character.is_control() && character != '\n'
        || !character.is_control() && !character.is_ascii() && HOSTILE.contains(character)
}

/// Returns a text of the same length that needs no escape.
fn harmless() -> String {
    "x".repeat(HOSTILE.chars().count())
}

fn profile(class: EventClass, part: Part, text: &str) -> Profile {
    let own = || text.to_owned();
    let amount = |bytes, count| Amount { bytes: Bytes(bytes), count };
    let usage = Quantities::ZERO
        .with_amount(Quantity::LiveBytes, amount(4096, 2))
        .with_amount(Quantity::AllocBytes, amount(8192, 4))
        .with_free(amount(4096, 2));
    let cgroup = Cgroup {
        path: format!("/{text}"),
        unit: Some(own()),
        container: Some(Container { runtime: Some("docker"), id: own() }),
        pod: Some(own()),
    };
    let process = ProcessProfile {
        exe: Some(PathBuf::from(format!("/{text}"))),
        total: usage,
        user: Some(User { uid: 1, name: Some(own()) }),
        cgroup: Some(Arc::new(cgroup)),
        threads: Some(1),
        thread_names: BTreeMap::from([(Tid(8), own())]),
        ..ProcessProfile::new(Pid(7), text)
    };
    let object = ObjectName { path: PathBuf::from(format!("/lib/{text}")), build_id: None };
    let frame = |name| Frame {
        name,
        object: Some(object.clone()),
        offset: Some(VirtOffset(16)),
        address: None,
        location: Some(Location { file: PathBuf::from(format!("/src/{text}")), line: Some(7) }),
        inlined: false,
        by_frame_pointer: false,
    };
    let (full, group) = (CgroupId::of(3), CgroupId::of(4));
    let victim = ImageId { pid: Pid(9), ordinal: 0 };
    Profile {
        run: RunFacts {
            class,
            allocators: BTreeMap::from([(AllocatorId(1), own())]),
            killed_cgroups: [full, group].into_iter().flatten().map(|id| (id, own())).collect(),
            notes: vec![own()],
            ..RunFacts::default()
        },
        processes: vec![process],
        stacks: vec![StackProfile {
            process: 0,
            part,
            frames: [0, 1].map(FrameId::new).into(),
            end: StackEnd::Complete,
            label: None,
            usage: usage.with(Quantity::ResidentBytes, 4096),
            histograms: BlockHistograms::default(),
            live_changes: LiveChanges::default(),
        }],
        frames: vec![frame(Ok(Name(own()))), frame(Err(memtrace_model::Unnamed::NoSymbol))],
        oom_kills: vec![OomKill { at: Tick(1), victim, comm: own(), by: Pid(10), by_comm: own(), group, full }],
        cgroups: vec![MemcgProfile { id: full, path: Some(own()), ..MemcgProfile::default() }],
        ..Profile::default()
    }
}

/// Grouping keys, with the part of a process that each key needs.
fn groupings() -> [(GroupBy, Part); 6] {
    [
        (GroupBy::Process, Part::WHOLE),
        (GroupBy::Cgroup, Part::WHOLE),
        (GroupBy::User, Part::WHOLE),
        (GroupBy::Comm, Part::WHOLE),
        (GroupBy::Allocator, Part::WHOLE.with_allocator(AllocatorId(1))),
        (GroupBy::Thread, Part::WHOLE.with_thread(Tid(8))),
    ]
}

fn report(format: Format, class: EventClass, (by, part): (GroupBy, Part), text: &str) -> String {
    let metric = if class == EventClass::Reclaim { Metric::StallTime } else { Metric::LiveBytes };
    let options = Options { metric, by, top: 10, all_stacks: false, subject: text.to_owned() };
    let mut bytes = Vec::new();
    write(format, &profile(class, part, text), &options, &mut bytes).expect("a vector takes everything");
    text_of(bytes)
}

#[track_caller]
fn assert_plain(text: &str) {
    let found: Vec<_> = text.lines().filter(|line| line.contains(is_forbidden)).collect();
    assert_eq!(found, [""; 0]);
}

fn every_report(check: impl Fn(Format, &str, &str)) {
    for &format in Format::OF_STACKS {
        for class in [EventClass::Heap, EventClass::Map, EventClass::Fault, EventClass::Reclaim] {
            for grouping in groupings() {
                check(format, &report(format, class, grouping, HOSTILE), &report(format, class, grouping, &harmless()));
            }
        }
    }
}

#[test]
fn hostile_text_cannot_control_a_terminal() {
    every_report(|format, hostile, _| match format {
        // These formats contain binary numbers, which can look like control characters.
        Format::Pprof | Format::Perfetto => {
            assert!(!["\x1b]", "\u{9b}31m", "\u{202e}"].iter().any(|text| hostile.contains(text)), "{hostile:?}");
        }
        _ => assert_plain(hostile),
    });
}

#[test]
fn hostile_text_adds_no_line() {
    every_report(|format, hostile, harmless| {
        if matches!(format, Format::Pprof | Format::Perfetto) {
            return assert!(!hostile.contains("\nattached"), "{hostile:?}");
        }
        assert_eq!(hostile.lines().count(), harmless.lines().count(), "{}:\n{hostile}", format.name());
        assert!(!hostile.lines().any(|line| line.trim_start().starts_with("attached")), "{hostile}");
    });
}

#[test]
fn hostile_text_adds_no_folded_entry() {
    for grouping in groupings() {
        let folded = report(Format::Folded, EventClass::Heap, grouping, HOSTILE);
        let (stack, value) = folded.trim_end().rsplit_once(' ').expect("a value");
        assert_eq!((stack.split(';').count(), value), (3, "4096"), "{folded}");
    }
}

#[test]
fn hostile_text_does_not_break_xml() {
    use quick_xml::events::Event;
    for grouping in groupings() {
        let svg = report(Format::Svg, EventClass::Heap, grouping, HOSTILE);
        let mut reader = quick_xml::Reader::from_str(&svg);
        let mut titles = 0;
        loop {
            match reader.read_event().expect("well-formed XML") {
                Event::Start(start) if start.name().as_ref() == b"title" => titles += 1,
                Event::Start(start) => assert_ne!(start.name().as_ref(), b"e", "{svg}"),
                Event::Eof => break,
                _ => {}
            }
        }
        // The titles are of all stacks, the group, and two frames.
        assert_eq!(titles, 4);
    }
}

#[test]
fn json_has_the_same_text_as_the_target() {
    let json = report(Format::Json, EventClass::Heap, (GroupBy::Comm, Part::WHOLE), HOSTILE);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let process = &json["processes"][0];
    for text in
        [&process["comm"], &process["user"], &process["unit"], &json["frames"][0]["name"], &json["roots"][0]["name"]]
    {
        assert_eq!(text, HOSTILE);
    }
}

#[test]
fn hostile_text_cannot_control_an_explanation() {
    let [hostile, harmless] = [HOSTILE, &harmless()].map(|text| {
        let page = explanation(text);
        let (mut plain, mut json) = (Vec::new(), Vec::new());
        write_explanation_text(&page, PageOptions { top: 5, colour: false, columns: 100 }, &mut plain)
            .expect("a vector");
        write_explanation_json(&page, &mut json).expect("a vector");
        [plain, json].map(|bytes| String::from_utf8(bytes).expect("explanations are UTF-8"))
    });
    for (hostile, harmless) in hostile.iter().zip(&harmless) {
        assert_plain(hostile);
        assert_eq!(hostile.lines().count(), harmless.lines().count(), "{hostile}");
    }
    let json: Value = serde_json::from_str(&hostile[1]).expect("JSON");
    assert_eq!(json["comm"], HOSTILE);
}

fn explanation(text: &str) -> Explanation {
    let held = MemorySizes { reserved: Bytes(8192), resident: Bytes(4096), ..MemorySizes::default() };
    let named = |name: &str| vec![NamedMemory { name: name.to_owned(), mappings: 1, held }];
    Explanation {
        runtime: None,
        pid: Pid(7),
        comm: text.into(),
        exe: PathBuf::from(text),
        threads: 1,
        counted: StatusCounters { rss: Bytes(12_288), ..StatusCounters::default() },
        before: None,
        heap: HeapMemory {
            allocator: Some(text.to_owned()),
            held: MemorySizes::default(),
            source: HeapSource::Unknown(text.to_owned()),
        },
        go: Some(GoMemory {
            version: Some(text.to_owned()),
            source: GoSource::Unknown(text.to_owned()),
            profile: GoProfile::Unreadable(text.to_owned()),
        }),
        anonymous: named(text),
        main_stack: held,
        thread_stacks: ThreadStacks::default(),
        files: vec![FileMemory { path: text.to_owned(), held, copied: Bytes(0) }],
        shmem: named(text),
        special: MemorySizes::default(),
        hugetlb: MemorySizes::default(),
        kinds: Vec::new(),
        pss: Bytes(0),
        cgroup: None,
        pressure: None,
        file_timeouts: 0,
    }
}
