use std::fmt::Write as _;

use memtrace_model::{
    Amount, Bytes, FrameId, GroupBy, Metric, Name, Part, Pid, ProcessProfile, Quantities, Quantity, StackEnd,
    StackProfile,
};
use proptest::prelude::*;

use super::*;

/// Returns the profile of a process named `comm`. Each of `stacks` has indices in `frames`, and live bytes.
fn profile(comm: &str, frames: &[&str], stacks: &[(Vec<usize>, u64)]) -> Profile {
    let frame = |name: &&str| Frame::new(Ok(Name(String::from(*name))));
    let stack = |(frames, bytes): &(Vec<usize>, u64)| {
        let frames = frames.iter().map(|&frame| FrameId::new(frame)).collect();
        let usage = Quantities::ZERO.with_amount(Quantity::LiveBytes, Amount::one(Bytes(*bytes)));
        StackProfile { usage, ..StackProfile::new(0, Part::WHOLE, frames, StackEnd::Complete) }
    };
    Profile {
        processes: vec![ProcessProfile::new(Pid(1), comm)],
        stacks: stacks.iter().map(stack).collect(),
        frames: frames.iter().map(frame).collect(),
        ..Profile::default()
    }
}

fn fold_of(profile: &Profile, separator: char) -> Fold {
    pruned_fold_of(profile, separator, None)
}

fn pruned_fold_of(profile: &Profile, separator: char, pruning: Option<Pruning>) -> Fold {
    let options =
        Options { metric: Metric::LiveBytes, by: GroupBy::Comm, top: 0, all_stacks: false, subject: String::new() };
    fold(profile, &options, &Spelling { separator, frame: Frame::label, pruning })
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
    // With NUL as separator, the stacks are in tree order: callees follow their caller.
    assert_eq!(lines(&fold_of(&profile, '\0')), ["p\0f 2", "p\0f\0g 25", "p\0f.cold 4"]);
}

#[test]
fn entries_too_small_for_the_picture_are_merged() {
    let stacks = [(vec![0, 1, 2], 1), (vec![0, 1, 3], 2), (vec![0, 2, 3], 7), (vec![0], 90)];
    let profile = profile("p", &["a", "b", "c", "d"], &stacks);
    let drawn = |parts, bytes| lines(&pruned_fold_of(&profile, ';', Some(Pruning { parts, bytes })));
    assert_eq!(drawn(100, None), ["p;a 90", "p;a;b;c 1", "p;a;b;d 2", "p;a;c;d 7"]);
    assert_eq!(drawn(50, None), ["p;a 90", "p;a;b;[other: 1 stack] 1", "p;a;b;d 2", "p;a;c;d 7"]);
    assert_eq!(drawn(20, None), ["p;a 90", "p;a;[other: 2 stacks] 3", "p;a;c;d 7"]);
    assert_eq!(drawn(1, None), ["p;a 90", "p;a;[other: 3 stacks] 10"]);
    // The two largest entries are `p` and `a`.
    assert_eq!(drawn(100, Some(1100)), ["p;a 90", "p;a;[other: 3 stacks] 10"]);
    assert_eq!(drawn(100, Some(0)), ["[other: 4 stacks] 100"]);
}

#[test]
fn merged_stacks_are_one_entry() {
    let mut profile = profile("p", &["a"], &[(vec![0], 7), (vec![], 20), (vec![], 1), (vec![], 4)]);
    for (stack, merged) in [(1, 12_345), (2, 5)] {
        profile.stacks[stack].usage[Quantity::MergedStacks] = merged;
    }
    let missing = ["p;[other: 12,350 stacks] 21", "p;[stack empty] 4", "p;a 7"];
    assert_eq!(lines(&fold_of(&profile, ';')), missing);
    let drawn = |parts| lines(&pruned_fold_of(&profile, ';', Some(Pruning { parts, bytes: None })));
    assert_eq!(drawn(5), ["p;[other: 12,351 stacks] 25", "p;a 7"]);
    assert_eq!(drawn(1), ["p;[other: 12,352 stacks] 32"]);
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
            let mut texts = BTreeMap::new();
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
