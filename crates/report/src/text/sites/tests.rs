use std::path::PathBuf;
use std::time::Duration;

use memtrace_model::{
    Amount, EventClass, Frame, FrameId, GroupBy, Location, Metric, Name, Part, PartChange, Pid, ProcessProfile,
    RunFacts, StackEnd, StackProfile, VirtOffset,
};

use super::*;
use crate::table::COLUMNS;

/// Returns a frame with the offset and the source line of its call.
fn frame(name: &str, offset: u64, line: u32) -> Frame {
    Frame {
        name: Ok(Name(String::from(name))),
        object: None,
        offset: Some(VirtOffset(offset)),
        address: None,
        location: Some(Location { file: PathBuf::from("src/serve.c"), line: Some(line) }),
        inlined: false,
        by_frame_pointer: false,
    }
}

fn stack(process: usize, frames: &[usize], live: u64, at_peak: Option<u64>) -> StackProfile {
    let live = Amount { bytes: Bytes(live), count: 1 };
    let frames = frames.iter().copied().map(FrameId::new).collect();
    StackProfile {
        usage: Quantities::of_blocks([live, live, Amount::default()])
            .with(Quantity::AtPeakBytes, at_peak.unwrap_or_default()),
        ..StackProfile::new(process, Part::WHOLE, frames, StackEnd::Complete)
    }
}

fn process(pid: u32) -> ProcessProfile {
    ProcessProfile::new(Pid(pid), "serve")
}

/// Returns the process, the value and the live blocks of each site.
fn sites(profile: &Profile, metric: Metric) -> Vec<(usize, u64, u64)> {
    let view = MetricView::new(profile, metric);
    let sites = ranked(view, &Frames::new(profile), &Groups::of(profile, GroupBy::Process));
    sites.iter().map(|site| (site.root, site.value, site.usage.live().count)).collect()
}

/// Returns the list of sites within `bounds`, with lines of at most a hundred characters.
fn written(profile: &Profile, options: &Options, bounds: Bounds) -> String {
    let mut text = Vec::new();
    let roots = Groups::of(profile, options.by);
    write(profile, options, bounds, &roots, &mut TextWriter::new(&mut text, COLUMNS)).unwrap();
    String::from_utf8(text).unwrap()
}

const MAIN: usize = 0;
const SERVE: usize = 1;
const SERVE_BEHIND: usize = 2;
const SERVE_BELOW: usize = 3;

/// Returns four frames. The second and the third one have the same text.
fn frames() -> Vec<Frame> {
    vec![frame("main", 0x10, 1), frame("serve", 0x20, 7), frame("serve", 0x28, 7), frame("serve", 0x30, 8)]
}

#[test]
fn stacks_of_equal_lines_are_one_site() {
    let stacks = vec![
        stack(0, &[MAIN, SERVE_BELOW], 500, None),
        stack(0, &[MAIN, SERVE], 300, Some(30)),
        stack(0, &[MAIN, SERVE_BEHIND], 400, Some(70)),
    ];
    let profile = Profile { processes: vec![process(1)], stacks, frames: frames(), ..Profile::default() };
    assert_eq!(sites(&profile, Metric::LiveBytes), [(0, 700, 2), (0, 500, 1)]);
    assert_eq!(sites(&profile, Metric::LiveCount), [(0, 2, 2), (0, 1, 1)]);
    assert_eq!(sites(&profile, Metric::PeakBytes), [(0, 100, 2)]);
}

#[test]
fn equal_lines_in_two_processes_are_two_sites() {
    let stacks = vec![stack(0, &[MAIN, SERVE], 300, None), stack(1, &[MAIN, SERVE_BEHIND], 300, None)];
    let processes = vec![process(1), process(2)];
    let profile = Profile { processes, stacks, frames: frames(), ..Profile::default() };
    assert_eq!(sites(&profile, Metric::LiveBytes), [(0, 300, 1), (1, 300, 1)]);
}

#[test]
fn equal_lines_in_one_group_are_one_site() {
    let stacks = vec![stack(0, &[MAIN, SERVE], 300, None), stack(1, &[MAIN, SERVE_BEHIND], 300, None)];
    let processes = vec![process(1), process(2)];
    let profile = Profile { processes, stacks, frames: frames(), ..Profile::default() };
    let view = MetricView::new(&profile, Metric::LiveBytes);
    let sites = ranked(view, &Frames::new(&profile), &Groups::of(&profile, GroupBy::Comm));
    assert_eq!(sites.iter().map(|site| (site.root, site.value)).collect::<Vec<_>>(), [(0, 600)]);
}

#[test]
fn a_site_includes_stacks_without_the_metric() {
    let stacks = vec![stack(0, &[MAIN, SERVE], 300, Some(30)), stack(0, &[MAIN, SERVE_BEHIND], 400, Some(0))];
    let profile = Profile { processes: vec![process(1)], stacks, frames: frames(), ..Profile::default() };
    assert_eq!(sites(&profile, Metric::PeakBytes), [(0, 30, 2)]);
}

#[test]
fn folded_runs_are_equal_if_their_lengths_are() {
    let library = |name| frame(name, 0, 1);
    let mut frames = frames();
    frames.extend([library("alloc::vec::push"), library("alloc::string::push_str"), library("alloc::alloc::alloc")]);
    let stacks = vec![
        stack(0, &[MAIN, SERVE, 4, 6], 1, None),
        stack(0, &[MAIN, SERVE_BEHIND, 5, 6], 2, None),
        stack(0, &[MAIN, SERVE, 5, 4, 6], 4, None),
    ];
    let profile = Profile { processes: vec![process(1)], stacks, frames, ..Profile::default() };
    assert_eq!(sites(&profile, Metric::LiveBytes), [(0, 4, 1), (0, 3, 2)]);
}

#[test]
fn the_heading_counts_joined_sites() {
    let stacks = vec![
        stack(0, &[MAIN, SERVE], 300, None),
        stack(0, &[MAIN, SERVE_BEHIND], 100, None),
        stack(0, &[MAIN, SERVE_BELOW], 100, None),
    ];
    let profile = Profile { processes: vec![process(1)], stacks, frames: frames(), ..Profile::default() };
    let options =
        Options { metric: Metric::LiveBytes, by: GroupBy::Process, top: 1, all_stacks: false, subject: String::new() };
    let bounds = Bounds { most: 1, only_large: false, lines: None };
    assert_eq!(
        written(&profile, &options, bounds),
        "\nTop 1 of 2 sites by live bytes\n\n  1.  80.0%  400 B in 2 blocks\n        \
         serve  src/serve.c:7\n        main   src/serve.c:1\n"
    );
}

#[test]
fn resident_bytes_without_page_tables_are_unknown() {
    let resident = |process: usize, bytes| {
        let stack = stack(process, &[MAIN, SERVE], 300, None);
        StackProfile { usage: stack.usage.with(Quantity::ResidentBytes, bytes), ..stack }
    };
    let locked = ProcessProfile { resident_is_unknown: true, ..process(2) };
    let run = RunFacts { class: EventClass::Map, ..RunFacts::default() };
    let (processes, stacks) = (vec![process(1), locked], vec![resident(0, 100), resident(1, 0)]);
    let profile = Profile { run, processes, stacks, frames: frames(), ..Profile::default() };
    let written_by = |by| {
        let options = Options { metric: Metric::LiveBytes, by, top: 10, all_stacks: false, subject: String::new() };
        written(&profile, &options, Bounds { most: 10, only_large: false, lines: None })
    };
    let text = written_by(GroupBy::Process);
    assert!(text.contains(", 100 B touched") && text.contains(", unknown touched"), "{text}");
    let text = written_by(GroupBy::Comm);
    assert!(text.contains(", ≥100 B touched"), "{text}");
}

/// Returns a profile of one process with a site of two lines for each number of live bytes.
fn profile_of_sites(live: &[u64]) -> Profile {
    let mut frames = vec![frame("main", 0x10, 1)];
    frames.extend((0..live.len()).map(|site| frame(&format!("site_{site}"), 0x20, 2)));
    let stacks = live.iter().enumerate().map(|(site, &live)| stack(0, &[MAIN, site + 1], live, None)).collect();
    Profile { processes: vec![process(1)], stacks, frames, ..Profile::default() }
}

fn by_live_bytes(top: usize) -> Options {
    Options { metric: Metric::LiveBytes, by: GroupBy::Process, top, all_stacks: false, subject: String::new() }
}

#[test]
fn small_sites_are_counted_unless_a_number_is_given() {
    let profile = profile_of_sites(&[9_700, 150, 90, 60]);
    let bounds = |only_large| Bounds { most: 10, only_large, lines: None };
    let text = written(&profile, &by_live_bytes(10), bounds(true));
    assert!(text.starts_with("\nTop 2 of 4 sites by live bytes\n\n  1.  97.0%  "), "{text}");
    assert!(text.contains("site_1 ") && !text.contains("site_2 "), "{text}");
    assert!(text.ends_with("\n\n     2 smaller sites with 1.5%; --top N lists N sites\n"), "{text}");
    let text = written(&profile, &by_live_bytes(10), bounds(false));
    assert!(text.starts_with("\nAll 4 sites") && text.contains("site_3 ") && !text.contains("--top"), "{text}");
    // If all sites are small, the largest one is listed.
    let text = written(&profile_of_sites(&[1; 200]), &by_live_bytes(10), bounds(true));
    assert!(text.starts_with("\nTop 1 of 200 sites") && text.contains("199 smaller sites with 99.5%"), "{text}");
}

#[test]
fn as_many_sites_as_fit_are_listed() {
    let profile = profile_of_sites(&[100; 20]);
    // The heading takes two lines, each site four, and the number of the others two.
    for (lines, sites) in [(0, 1), (4, 1), (11, 1), (12, 2), (15, 2), (16, 3), (80, 19), (84, 20), (200, 20)] {
        let bounds = Bounds { most: usize::MAX, only_large: true, lines: Some(lines) };
        let text = written(&profile, &by_live_bytes(10), bounds);
        assert_eq!(text.lines().filter(|line| line.contains(" 100 B in 1 block")).count(), sites, "{lines}: {text}");
        assert!(text.lines().count() <= lines.max(8), "{lines}: {text}");
    }
}

#[test]
fn sites_state_their_trend() {
    let mut profile = profile_of_sites(&[800, 100]);
    profile.run.parts = (0..8).map(|second| Duration::from_secs(second)..Duration::from_secs(second + 1)).collect();
    for part in 0..8 {
        profile.stacks[0].live_changes.add(part, 8, PartChange { live: 100, alloc: 100 });
    }
    let bounds = Bounds { most: 10, only_large: true, lines: None };
    let text = written(&profile, &by_live_bytes(10), bounds);
    let expected =
        "800 B in 1 block\n     steady growth: +5.86 KiB/min in 8 of 8 parts from +0 s to +8 s\n        site_0";
    assert!(text.contains(expected) && text.matches("growth").count() == 1, "{text}");
}

#[test]
fn a_site_with_unknown_changes_has_no_trend() {
    let stacks = vec![stack(0, &[MAIN, SERVE], 800, None), stack(0, &[MAIN, SERVE_BEHIND], 300, None)];
    let mut profile = Profile { processes: vec![process(1)], stacks, frames: frames(), ..Profile::default() };
    profile.run.parts = (0..8).map(|second| Duration::from_secs(second)..Duration::from_secs(second + 1)).collect();
    let bounds = Bounds { most: 10, only_large: true, lines: None };
    let has_trend = |profile: &Profile| written(profile, &by_live_bytes(10), bounds).contains("steady growth");
    (0..8).for_each(|part| profile.stacks[0].live_changes.add(part, 8, PartChange { live: 100, alloc: 100 }));
    assert!(!has_trend(&profile), "the changes of the second stack are unknown");
    (0..8).for_each(|part| profile.stacks[1].live_changes.add(part, 8, PartChange { live: 37, alloc: 37 }));
    assert!(!has_trend(&profile), "the changes are not all");
    profile.stacks[1].live_changes.add(7, 8, PartChange { live: 4, alloc: 4 });
    assert!(has_trend(&profile));
}
