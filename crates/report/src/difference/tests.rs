//! Tests of the comparison of two reports.

use memtrace_model::{
    AbsAddr, Amount, Bytes, EventClass, Frame, FrameId, ImageEnd, Location, Name, ObjectName, Part, Pid,
    ProcessProfile, Profile, Quantities, Quantity, SampleSource, Sampler, StackEnd, StackProfile, Unnamed, Variance,
};

use super::*;

/// Returns a profile of `service` with live bytes by stack. Blanks separate the frames of a stack, the outermost
/// first.
fn profile(pid: u32, line: u32, stacks: &[(&str, u64)]) -> Profile {
    let mut profile = Profile { processes: vec![ProcessProfile::new(Pid(pid), "service")], ..Profile::default() };
    for &(names, bytes) in stacks {
        let frames = names.split_whitespace().map(|name| {
            let frame = Frame {
                location: Some(Location { file: "service.c".into(), line: Some(line) }),
                ..Frame::new(Ok(Name(name.to_owned())))
            };
            let known = profile.frames.iter().position(|other| *other == frame);
            FrameId::new(known.unwrap_or_else(|| {
                profile.frames.push(frame);
                profile.frames.len() - 1
            }))
        });
        let frames: Vec<FrameId> = frames.collect();
        let end = if frames.is_empty() { StackEnd::NotTaken } else { StackEnd::Complete };
        let live = Amount { bytes: Bytes(bytes), count: 1 };
        let usage = Quantities::ZERO.with_amount(Quantity::LiveBytes, live).with_amount(Quantity::AllocBytes, live);
        profile.stacks.push(StackProfile { usage, ..StackProfile::new(0, Part::WHOLE, frames.into(), end) });
        profile.processes[0].total += usage;
    }
    profile
}

fn side(name: &str, profile: Profile) -> Side {
    Side::new(name.to_owned(), format!("pid {} (service)", profile.processes[0].pid), profile)
}

fn written(format: Format, before: &Side, after: &Side) -> String {
    let mut bytes = Vec::new();
    write(format, before, after, Metric::LiveBytes, 10, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Returns the kinds, values and leaf functions of the sites in JSON.
fn sites(before: &Side, after: &Side) -> Vec<(String, u64, u64, String)> {
    let text = written(Format::Json, before, after);
    crate::json_lines::assert_round_trip::<memtrace_json::Difference<'static>>(&text);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let sites = json["sites"].as_array().unwrap();
    for site in sites {
        let number = |key: &str| site[key].as_i64().unwrap();
        assert_eq!(number("change"), number("after") - number("before"));
    }
    let sum = |key: &str| sites.iter().map(|site| site[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(
        (sum("before"), sum("after")),
        (json["before"]["value"].as_u64().unwrap(), json["after"]["value"].as_u64().unwrap())
    );
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let leaf = |site: &serde_json::Value| text(site["frames"].as_array().unwrap().last().unwrap());
    let row = |site: &serde_json::Value| {
        (text(&site["kind"]), site["before"].as_u64().unwrap(), site["after"].as_u64().unwrap(), leaf(site))
    };
    sites.iter().map(row).collect()
}

fn site(kind: &str, before: u64, after: u64, leaf: &str) -> (String, u64, u64, String) {
    (kind.to_owned(), before, after, leaf.to_owned())
}

#[test]
fn sites_of_another_process_and_build_match_by_function() {
    let before = side(
        "a.json",
        profile(7, 10, &[("main grow", 100), ("main keep", 1000), ("main drop", 50), ("main shrink", 40)]),
    );
    let after = side(
        "b.json",
        profile(8, 20, &[("main keep", 1050), ("main grow", 900), ("main shrink", 30), ("main add", 7)]),
    );
    let expected = [
        site("grown", 100, 900, "grow"),
        site("stable", 1000, 1050, "keep"),
        site("vanished", 50, 0, "drop"),
        site("shrunk", 40, 30, "shrink"),
        site("new", 0, 7, "add"),
    ];
    let found = sites(&before, &after);
    for site in &expected {
        assert!(found.contains(site), "{site:?} is not in {found:?}");
    }
    assert_eq!((found.len(), &found[0]), (expected.len(), &expected[0]));
}

#[test]
fn report_has_no_difference_to_itself() {
    let report = side("a.json", profile(7, 10, &[("main grow", 100), ("", 60), ("main grow", 20)]));
    let found = sites(&report, &report);
    assert!(found.iter().all(|(kind, before, after, _)| kind == "stable" && before == after), "{found:?}");
    let text = written(Format::Text, &report, &report);
    assert!(text.starts_with("Difference of live bytes: ±0 B\n"), "{text}");
    assert!(text.contains("\nNo site changed by more than 5 %.\n"), "{text}");
    assert_eq!(
        written(Format::Folded, &report, &report),
        "service;[stack not taken] 60 60\nservice;main;grow 120 120\n"
    );
}

#[test]
fn merged_stacks_and_unknown_addresses_match() {
    let with_others = |merged, address| {
        let mut profile = profile(7, 10, &[("main jit", 100), ("main", 60)]);
        profile.stacks[1].usage[Quantity::MergedStacks] = merged;
        profile.frames[1] = Frame { address: Some(AbsAddr(address)), ..Frame::new(Err(Unnamed::NoMapping)) };
        side("a.json", profile)
    };
    let found = sites(&with_others(12, 0x7000), &with_others(31, 0x9000));
    assert_eq!(found, [site("stable", 100, 100, "[unknown]"), site("stable", 60, 60, "[other stacks]")]);
}

#[test]
fn functions_without_names_match_by_their_offset_in_the_object() {
    let stripped = |offset| {
        let mut profile = profile(7, 10, &[("main", 100)]);
        let object = ObjectName { path: "/usr/lib/libx.so".into(), build_id: None };
        profile.frames[0] = Frame {
            object: Some(object),
            offset: Some(memtrace_model::VirtOffset(offset)),
            ..Frame::new(Err(Unnamed::NoMapping))
        };
        side("a.json", profile)
    };
    assert_eq!(sites(&stripped(0x10), &stripped(0x10)), [site("stable", 100, 100, "libx.so+0x10")]);
    assert_eq!(sites(&stripped(0x10), &stripped(0x20)).len(), 2);
}

#[test]
fn text_lists_kinds_and_sites() {
    let before = side("a.json", profile(7, 10, &[("main grow", 1 << 20), ("main keep", 4096)]));
    let after = side("b.json", profile(8, 20, &[("main grow", 3 << 20), ("main keep", 4096)]));
    let expected = "\
Difference of live bytes: +2.00 MiB
  before      1.00 MiB  a.json (pid 7 (service), 0 s)
  after       3.00 MiB  b.json (pid 8 (service), 0 s)

  SITES     COUNT    BEFORE     AFTER     CHANGE
  new           0       0 B       0 B       ±0 B
  grown         1  1.00 MiB  3.00 MiB  +2.00 MiB
  stable        1  4.00 KiB  4.00 KiB       ±0 B
  shrunk        0       0 B       0 B       ±0 B
  vanished      0       0 B       0 B       ±0 B
  total         2  1.00 MiB  3.00 MiB  +2.00 MiB

The one site by change of live bytes

  1. +2.00 MiB  grown: 1.00 MiB to 3.00 MiB, service
        grow  service.c:10
        main  service.c:10

The one site that changed by at most 5 %, by live bytes

  1. ±0 B  stable: 4.00 KiB to 4.00 KiB, service
        keep  service.c:10
        main  service.c:10
";
    assert_eq!(written(Format::Text, &before, &after), expected);
}

#[test]
fn live_blocks_are_comparable_with_blocks_held_at_exit() {
    let before = side("a.json", profile(7, 10, &[("main grow", 100)])).held();
    let mut ended = profile(7, 10, &[("main grow", 300)]);
    ended.stacks[0].usage.end(ImageEnd::OomKill, EventClass::Heap);
    let after = side("b.json", ended).held();
    assert_eq!((before.is_held, after.is_held), (true, false));
    let mut text = Vec::new();
    write(Format::Text, &before, &after, Metric::ExitBytes, 10, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("Difference of bytes held at exit: +200 B\n"), "{text}");
    assert!(text.contains("  live blocks of the report before count as held at exit\n"), "{text}");
    assert!(!text.contains("report after count"), "{text}");
}

#[test]
fn losses_and_empty_reports_are_named() {
    let mut lossy = profile(7, 10, &[]);
    lossy.losses.add(memtrace_model::LossReason::PendingFull, 3);
    let (before, after) = (side("a.json", lossy), side("b.json", profile(7, 10, &[])));
    let text = written(Format::Text, &before, &after);
    assert!(text.contains("\n  3 events were lost in the report before: its numbers are incomplete\n"), "{text}");
    assert!(text.ends_with("\nNo sites to compare: neither report has live bytes.\n"), "{text}");
    let picture = written(Format::Svg, &before, &after);
    assert!(picture.contains("Nothing to draw: neither report has live bytes."), "{picture}");
    assert_eq!(after.profile.run.class, EventClass::Heap);
}

#[test]
fn picture_has_the_change_of_each_leaf() {
    let before = side("a.json", profile(7, 10, &[("main grow", 100), ("main drop", 10)]));
    let after = side("b.json", profile(8, 10, &[("main grow", 300)]));
    let picture = written(Format::Svg, &before, &after);
    assert!(picture.contains("<title>grow (300 bytes, 100.00%; +66.67%)</title>"), "{picture}");
    assert!(picture.contains("1 vanished stack not drawn"), "{picture}");
}

/// Returns a profile of samples that stand for 512 KiB each. `stacks`: functions with the number of their live samples.
fn sampled(pid: u32, stacks: &[(&str, u64)]) -> Profile {
    const INTERVAL: u64 = 512 << 10;
    let bytes: Vec<_> = stacks.iter().map(|&(name, samples)| (name, samples * INTERVAL)).collect();
    let mut profile = profile(pid, 10, &bytes);
    for (stack, &(_, samples)) in profile.stacks.iter_mut().zip(stacks) {
        stack.usage = stack.usage.with(Quantity::HeldSamples, samples).with(Quantity::AllocSamples, samples);
        stack.usage.add_variance(Variance::HeldBytes, u128::from(samples) << 38);
        stack.usage.add_variance(Variance::AllocBytes, u128::from(samples) << 38);
    }
    let sampler = Sampler { source: SampleSource::Go, interval: Some(Bytes(INTERVAL)) };
    profile.run.samplers.add(Pid(pid), sampler);
    profile
}

/// The distances of 4 samples are 2.4445 and 6.2861 times 512 KiB, of 6 samples 3.2502 and 7.0918, and of 0 samples 0 and
/// 3.8416. The change from 4 to 6 samples has the distances √(3.2502² + 6.2861²) = 7.0767 and √(7.0918² + 2.4445²) = 7.5013:
/// it is from -2.538 to 4.751 MiB. The change from 0 to 6 samples is from 6 - √(3.2502² + 3.8416²) = 0.968 to 13.092 times
/// 512 KiB, and the change from 0 to 4 samples is from -0.553 to 10.286 times 512 KiB.
#[test]
fn changes_of_estimates_within_their_error_are_no_growth() {
    let before = side("a.json", sampled(7, &[("main grow", 4)]));
    let after = side("b.json", sampled(8, &[("main grow", 6), ("main fresh", 6), ("main few", 4)]));
    let mib = 1 << 20;
    let expected = [
        site("new", 0, 3 * mib, "fresh"),
        site("within_error", 0, 2 * mib, "few"),
        site("within_error", 2 * mib, 3 * mib, "grow"),
    ];
    assert_eq!(sites(&before, &after), expected);
    let text = written(Format::Text, &before, &after);
    for part in [
        "Difference of live bytes: +6.00 MiB (+1.60 to +11.14 MiB)\n",
        "  before      2.00 MiB (796.41 KiB to 5.14 MiB)  a.json",
        "  after       8.00 MiB (4.92 to 13.00 MiB)  b.json",
        "  estimates in the report before: Go's own profile, one sample each 512 KiB\n",
        "  the error of a change is too large for blocks that are in both reports\n",
        "within the error      2  2.00 MiB  5.00 MiB  +3.00 MiB\n",
        "\nThe one site by change of live bytes\n",
        "\n  1. +3.00 MiB (+495.59 KiB to +6.55 MiB)  new: 0 B to 3.00 MiB, service\n",
        "\nAll 2 sites that changed within the error, by change of live bytes\n",
        "\n  1. +2.00 MiB (-283.34 KiB to +5.14 MiB)  within the error: 0 B to 2.00 MiB, service\n",
        "\n  2. +1.00 MiB (-2.54 to +4.75 MiB)  within the error: 2.00 MiB to 3.00 MiB, service\n",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&written(Format::Json, &before, &after)).unwrap();
    let ends = |value: &serde_json::Value, low: &str, high: &str| [value[low].as_i64(), value[high].as_i64()];
    let fresh = [3 * mib - 2_638_248, 3 * mib + 3_718_138].map(u64::cast_signed);
    assert_eq!(ends(&json["sites"][0], "change_low", "change_high"), fresh.map(Some));
    assert_eq!(ends(&json["before"], "value_low", "value_high"), [815_528, 5_392_881].map(Some));
    assert_eq!(ends(&json, "change_low", "change_high"), [6_291_456 - 4_611_076, 6_291_456 + 5_393_521].map(Some));
    let unchanged = sites(&before, &before);
    assert_eq!(unchanged, [site("stable", 2 * mib, 2 * mib, "grow")]);
}

#[test]
fn the_interval_of_another_process_hides_no_change() {
    let with_other = |mut profile: Profile| {
        profile.processes.push(ProcessProfile::new(Pid(9), "other"));
        let large = Sampler { source: SampleSource::Jemalloc, interval: Some(Bytes(1 << 31)) };
        profile.run.samplers.add(Pid(9), large);
        profile
    };
    let before = side("a.json", with_other(sampled(7, &[("main drop", 6)])));
    let after = side("b.json", with_other(sampled(8, &[("main fresh", 6)])));
    // 6 samples are at least 0.968 times 512 KiB more than none, as above.
    let mib = 1 << 20;
    let changes = sites(&before, &after);
    assert!(changes.contains(&site("new", 0, 3 * mib, "fresh")), "{changes:?}");
    assert!(changes.contains(&site("vanished", 3 * mib, 0, "drop")), "{changes:?}");
}

#[test]
fn exact_blocks_differ_from_estimates_by_the_error_of_one_side() {
    let exact = |bytes| side("a.json", profile(7, 10, &[("main grow", bytes)]));
    let after = side("b.json", sampled(8, &[("main grow", 4)]));
    // 4 samples are 2 MiB, from 0.778 to 5.143 MiB.
    let kinds = |bytes: u64| sites(&exact(bytes), &after)[0].0.clone();
    assert_eq!([815_000, 816_000].map(kinds), ["grown", "within_error"]);
    let kinds = |bytes: u64| sites(&after, &exact(bytes))[0].0.clone();
    assert_eq!([5_392_000, 5_393_000].map(kinds), ["within_error", "grown"]);
}
