use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::model::{
    Amount, Bytes, FrameId, GroupBy, Metric, Name, Partition, Pid, ProcessProfile, StackEnd, StackProfile, Usage,
    Variance,
};

/// The profile of one process of that name, with stacks of these frames and live bytes.
fn profile(comm: &str, frames: &[&str], stacks: &[(Vec<usize>, u64)]) -> Profile {
    let frame = |name: &&str| Frame {
        name: Ok(Name(String::from(*name))),
        object: None,
        offset: None,
        address: None,
        location: None,
        inlined: false,
        by_frame_pointer: false,
    };
    let stack = |(frames, bytes): &(Vec<usize>, u64)| StackProfile {
        process: 0,
        part: Partition::Whole,
        frames: frames.iter().map(|&frame| FrameId::new(frame)).collect(),
        end: StackEnd::Complete,
        merged: 0,
        usage: Usage { live: Amount::one(Bytes(*bytes)), ..Usage::default() },
        at_peak: None,
        major_faults: 0,
        variance: Variance::default(),
        resident: Bytes(0),
    };
    Profile {
        processes: vec![ProcessProfile::new(Pid(1), comm)],
        stacks: stacks.iter().map(stack).collect(),
        frames: frames.iter().map(frame).collect(),
        ..Profile::default()
    }
}

fn fold_of(profile: &Profile, separator: char) -> Fold {
    let options = Options { metric: Metric::LiveBytes, by: GroupBy::Comm, top: 0, subject: String::new() };
    fold(profile, &options, &Spelling { separator, frame: Frame::label })
}

fn lines(fold: &Fold) -> Vec<String> {
    fold.lines().map(|(line, value)| format!("{line} {value}")).collect()
}

#[test]
fn folded_lines_cannot_be_misparsed_by_inferno() {
    let line_of = |comm, frames: &[&str]| {
        let stack = (0..frames.len()).collect();
        fold_of(&profile(comm, frames, &[(stack, 1)]), ';').lines().next().unwrap().0
    };
    assert_eq!(line_of("# sh", &["main"]), "#_sh;main");
    assert_eq!(line_of("sh", &["main 7"]), "sh;main_7");
    assert_eq!(line_of("sh", &["main 7.5"]), "sh;main_7.5");
    assert_eq!(line_of("sh 2", &["main (7)"]), "sh 2;main (7)");
    assert_eq!(line_of("sh 2", &["7"]), "sh 2;7");
}

#[test]
fn stacks_of_equal_text_are_joined_and_sorted() {
    let stacks = [(vec![0, 1], 1), (vec![0], 2), (vec![2], 4), (vec![3, 1], 8), (vec![0, 1], 16)];
    let profile = profile("p", &["f", "g", "f.cold", "f"], &stacks);
    assert_eq!(lines(&fold_of(&profile, ';')), ["p;f 2", "p;f.cold 4", "p;f;g 25"]);
    // As a tree is ordered.
    assert_eq!(lines(&fold_of(&profile, '\0')), ["p\0f 2", "p\0f\0g 25", "p\0f.cold 4"]);
}

#[test]
fn callees_of_narrow_entries_are_left_out() {
    let stacks = [(vec![0, 1, 2], 1), (vec![0, 1, 3], 2), (vec![0, 2, 3], 7), (vec![0], 90)];
    let profile = profile("p", &["a", "b", "c", "d"], &stacks);
    let drawn = |parts| {
        let lines = fold_of(&profile, ';').drawn(parts);
        lines.into_iter().map(|(line, value)| format!("{line} {value}")).collect::<Vec<_>>()
    };
    assert_eq!(drawn(100), ["p;a 90", "p;a;b;c 1", "p;a;b;d 2", "p;a;c;d 7"]);
    assert_eq!(drawn(20), ["p;a 90", "p;a;b 3", "p;a;c;d 7"]);
    assert_eq!(drawn(1), ["p;a 90", "p;a;b 3", "p;a;c 7"]);
}

proptest! {
    #[test]
    fn folded_lines_are_sorted_and_summed(
        stacks in prop::collection::vec((prop::collection::vec(0_usize..6, 1..5), 1_u64..9), 0..20),
    ) {
        const FRAMES: [&str; 6] = ["f", "f.cold", "f 2", "g", "~", "f;"];
        let profile = profile("p", &FRAMES, &stacks);
        for separator in [';', '\0'] {
            let fold = fold_of(&profile, separator);
            let mut texts = std::collections::BTreeMap::new();
            for (frames, value) in &stacks {
                let mut text = String::from("p");
                for (place, &frame) in frames.iter().enumerate() {
                    let name = FRAMES[frame].replace(';', ":");
                    let name = if place + 1 == frames.len() { name.replace(' ', "_") } else { name };
                    write!(text, "{separator}{name}").unwrap();
                }
                *texts.entry(text).or_insert(0) += value;
            }
            prop_assert_eq!(fold.lines().collect::<Vec<_>>(), texts.into_iter().collect::<Vec<_>>());
        }
    }
}
