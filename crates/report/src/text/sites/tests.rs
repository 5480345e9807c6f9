use std::path::PathBuf;

use memtrace_model::{
    Amount, Frame, FrameId, GroupBy, Location, Metric, Name, Part, Pid, ProcessProfile, StackEnd, StackProfile,
    VirtOffset,
};

use super::*;

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
    let mut text = Vec::new();
    write(&profile, &options, &Groups::of(&profile, GroupBy::Process), &mut text).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "\nTop 1 of 2 sites by live bytes\n\n  1.  80.0%  400 B in 2 blocks\n        \
         serve  src/serve.c:7\n        main   src/serve.c:1\n"
    );
}
