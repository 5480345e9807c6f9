//! Properties of the flame graph.

use memtrace_model::{Metric, Profile, Quantity, RunFacts};
use memtrace_report::Format;
use quick_xml::events::Event;

use super::host::{all_ended, host};
use super::sample::{sample, with_touches};
use super::waits::waits;
use super::{options, report, sample_report};

#[test]
fn every_flame_graph_is_well_formed_and_complete() {
    for metric in Metric::ALL {
        let profile = match metric {
            Metric::StallTime | Metric::StallCount => waits(),
            Metric::ExitBytes | Metric::ExitCount => all_ended(),
            Metric::Temporary => with_temporary_blocks(),
            Metric::HotBytes | Metric::ColdBytes => with_touches(),
            _ => sample(),
        };
        let svg = report(Format::Svg, &profile, &options(metric));
        let sum: u64 = profile.stacks.iter().map(|stack| metric.value(&stack.usage)).sum();
        assert_well_formed(&svg);
        assert!(svg.contains(&format!("total_samples=\"{sum}\"")), "{}", metric.name());
    }
    assert_well_formed(&report(Format::Svg, &Profile::default(), &options(Metric::PeakBytes)));
}

/// Returns the sample with all freed blocks temporary.
fn with_temporary_blocks() -> Profile {
    let mut profile = sample();
    for stack in &mut profile.stacks {
        stack.usage = stack.usage.with_amount(Quantity::TemporaryBytes, stack.usage.free());
    }
    profile
}

#[test]
fn the_title_names_memory_held_at_exit() {
    for (profile, title) in [(host(), "memtrace: live bytes of "), (all_ended(), "memtrace: bytes held at exit of ")] {
        let svg = report(Format::Svg, &profile, &options(profile.metric(None)));
        assert!(svg.contains(&format!(">{title}")), "{title} is not in {svg}");
        let sum: u64 = profile.stacks.iter().map(|stack| profile.metric(None).value(&stack.usage)).sum();
        assert!(svg.contains(&format!("total_samples=\"{sum}\"")), "{title}");
    }
}

#[test]
fn a_function_and_its_cold_sibling_are_each_drawn_once() {
    let svg = sample_report(Format::Svg);
    assert_eq!(svg.matches("<title>handle (1,507,328 bytes").count(), 1);
    assert_eq!(svg.matches("<title>handle.cold (131,072 bytes").count(), 1);
}

#[test]
fn a_picture_takes_sums_beyond_64_bits() {
    let mut profile = sample();
    for stack in &mut profile.stacks {
        stack.usage[Quantity::LiveBytes] = u64::MAX;
    }
    assert_well_formed(&report(Format::Svg, &profile, &options(Metric::LiveBytes)));
}

#[track_caller]
fn assert_well_formed(svg: &str) {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    assert!(svg.chars().all(allowed), "characters that XML does not allow");
    let mut reader = quick_xml::Reader::from_str(svg);
    reader.config_mut().check_comments = true;
    let mut depth = 0;
    loop {
        match reader.read_event().expect("the picture is well-formed") {
            Event::Start(element) => {
                depth += 1;
                assert!(element.attributes().all(|attribute| attribute.is_ok()));
            }
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
}

#[test]
fn strip_below_a_flame_graph_shows_memory_over_time() {
    let profile = crate::long::html::with_timeline();
    let draw = |profile| report(Format::Svg, profile, &options(Metric::LiveBytes));
    let (picture, without) =
        (draw(&profile), draw(&Profile { run: RunFacts { timeline: None, ..profile.run.clone() }, ..profile.clone() }));
    let height = |picture: &str| -> u32 {
        let (_, rest) = picture.split_once("width=\"1200\" height=\"").expect("a height");
        let (height, rest) = rest.split_once('"').expect("a number");
        let (_, rest) = rest.split_once("viewBox=\"0 0 1200 ").expect("a view box");
        assert_eq!(rest.split_once('"').expect("a number").0, height);
        height.parse().expect("a number")
    };
    assert_eq!(height(&picture), height(&without) + 96);
    assert!(picture.contains("Memory from 1 s to 4 s, at most 5.00 MiB:"), "{picture}");
    let points: Vec<_> = picture.split("points=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    // The height of 60 pixels stands for 5 MiB.
    let live = "0.0,48.0 333.3,36.0 666.7,24.0 1000.0,12.0";
    assert_eq!(points, [live, "0.0,0.0 333.3,0.0 666.7,0.0 1000.0,0.0"]);
    assert!(!without.contains("id=\"memory\""));
    assert_well_formed(&picture);
}
