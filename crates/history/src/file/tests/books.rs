//! Equality of the views of a history in memory and in a file.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use harness::Scratch;
use memtrace_model::{Amount, Bytes, Epoch, GroupBy, Metric, Quantities, Quantity, Tick, format};
use memtrace_report::Format;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::activity_model::active_second;
use super::sample_intervals::{header, intervals, second};
use super::{SETTINGS, image_merges};
use crate::facts::{GoProfileMoments, RecordedFacts, of_changed_go_profiles};
use crate::file::store::Store;
use crate::*;

/// Random parameters of a view.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// Indices of the boundaries. If the first one is 0, the view shows totals.
    moments: [usize; 2],
    is_between_marks: bool,
    options: ViewOptions,
}

fn shown() -> impl Strategy<Value = Shown> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (0..30usize, 0..30usize, flags, 0..4usize).prop_map(|(one, other, flags, keep_ended)| {
        let (is_between_marks, keeps_parts, counts_growth, has_timeline) = flags;
        let options = ViewOptions { keeps_parts, keep_ended, counts_growth, has_timeline };
        Shown { moments: [one.min(other), one.max(other)], is_between_marks, options }
    })
}

/// Returns the reports of all event classes as JSON.
fn json(book: &dyn Book, shown: &Shown) -> String {
    let boundary = |index: usize| match index {
        0 => Boundary::START,
        index => book.intervals().get(index - 1).map_or_else(|| book.end(), IntervalRow::end),
    };
    let [from, to] = shown.moments.map(boundary);
    let facts = RecordedFacts::new(book.facts(book.end()).unwrap());
    let window = Some(from).filter(|from| *from > Boundary::START && *from < to);
    let mut moments = Moments::new(book, &facts, window, if to == Boundary::START { book.end() } else { to });
    if shown.is_between_marks && window.is_some() {
        let inexact = book.marks().iter().filter(|mark| !mark.is_exact).map(|mark| mark.mark.text.clone());
        moments = moments.with_marks(Epoch(1), inexact.collect());
    }
    let names = FramesByObject::default();
    let mut views = view(book, &facts, &moments, &names, shown.options).unwrap();
    let mut json = Vec::new();
    for &class in &book.header().classes {
        let stacks = views.take(class);
        let profile = views.profile(class, stacks, &facts, Vec::new(), |_| None);
        let options = memtrace_report::Options {
            metric: profile.metric(Some(Metric::AllocBytes)),
            by: GroupBy::Process,
            top: 0,
            all_stacks: true,
            subject: String::from("both"),
        };
        memtrace_report::write(Format::Json, &profile, &options, &mut json).unwrap();
    }
    String::from_utf8(json).unwrap()
}

/// Returns the first lines that differ.
fn difference(one: &str, other: &str) -> Option<(String, String)> {
    let pairs = one.lines().zip(other.lines());
    let lines = pairs.chain([("", "")].into_iter().filter(|_| one.lines().count() != other.lines().count()));
    lines.filter(|(one, other)| one != other || one.is_empty()).map(|(one, other)| (one.into(), other.into())).next()
}

/// Live amounts of stacks.
type Live = BTreeMap<TotalKey, Amount>;

/// Returns changes with sums that are not negative. In every other interval, half of the live memory is freed.
fn possible(at: u64, changes: Vec<Change>, live: &mut Live) -> Vec<Change> {
    let number = |number: u64| number & 0xff_ffff;
    let change = |Change { key, usage }: Change| {
        let mut positive = Quantities::ZERO;
        usage.iter().for_each(|(quantity, value)| positive[quantity] = number(value));
        let live = live.entry(key).or_default();
        let half = Amount { bytes: Bytes(live.bytes.0 / 2), count: live.count / 2 };
        let change = if at % 2 == 1 { Amount::default() - half } else { positive.live() };
        *live += change;
        Change { key, usage: positive.with_amount(Quantity::LiveBytes, change) }
    };
    changes.into_iter().map(change).collect()
}

/// Intervals of one second with every kind of row, and with random changes.
fn mixed(random: Vec<Interval>, activity: &[u64]) -> Vec<Interval> {
    let mut live = Live::new();
    let second = |(at, random): (u64, Interval)| {
        let Interval { changes, mut details, mut image_changes, stalls, losses, .. } = random;
        details.iter_mut().for_each(|detail| detail.value &= 0xffff);
        image_changes.iter_mut().for_each(|change| change.value &= 0xffff);
        let mut interval = Interval { details, image_changes, stalls, losses, ..second(at) };
        // Two changes of a stack in an interval count as their sum.
        interval.changes.extend(possible(at, changes, &mut live));
        let activity = active_second(at, activity, activity);
        Interval {
            activity: activity.activity,
            activity_stacks: activity.activity_stacks,
            calls: activity.calls,
            ..interval
        }
    };
    (0..).zip(random).map(second).collect()
}

/// Stores intervals in a file and in memory. If `merges` is true, both merge old intervals.
fn stored(scratch: &Scratch, intervals: &[Interval], merges: bool) -> (Recording, MemoryBook) {
    let path = scratch.path("run.memtrace");
    fs::File::create(&path).unwrap();
    let mut store = Store::create(&path, &header(), SETTINGS.size_limit, 1 << 20).unwrap();
    let mut memory = MemoryBook::new(header(), Bytes(1 << 40));
    for interval in intervals {
        store.write(interval, 1, None).unwrap();
        memory.append(interval.clone());
    }
    if merges {
        store.compact_always();
        memory.merge_old_intervals();
    }
    store.finish().unwrap();
    memory.finish();
    (Recording::open(&path).unwrap(), memory)
}

/// Checks that the views of a file and of memory are equal.
fn assert_equal(random: Vec<Interval>, activity: &[u64], shown: &Shown) -> TestCaseResult {
    let scratch = Scratch::in_memory();
    let (file, memory) = stored(&scratch, &mixed(random, activity), false);
    prop_assert_eq!(difference(&json(&file, shown), &json(&memory, shown)), None);
    Ok(())
}

/// Checks that the views of a file and of memory are equal after merges of old intervals.
fn assert_equal_after_merges(random: Vec<Interval>, activity: &[u64], shown: &Shown) -> TestCaseResult {
    let scratch = Scratch::in_memory();
    let (file, memory) = stored(&scratch, &mixed(random, activity), true);
    prop_assert_eq!(file.intervals(), memory.intervals());
    prop_assert_eq!(file.marks(), memory.marks());
    prop_assert_eq!(difference(&json(&file, shown), &json(&memory, shown)), None);
    Ok(())
}

/// Returns samples of the activity of threads.
fn activity() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0..1000u64, 0..4)
}

macro_rules! compare_views {
    ($cases:literal) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases($cases))]

            #[test]
            fn views_of_both_are_equal(random in intervals(1..12), activity in activity(), shown in shown()) {
                assert_equal(random, &activity, &shown)?;
            }

            #[test]
            fn views_of_both_are_equal_after_merges(
                random in intervals(10..45), activity in activity(), shown in shown(),
            ) {
                assert_equal_after_merges(random, &activity, &shown)?;
            }
        }
    };
}

compare_views!(100);

mod long {
    use super::*;

    compare_views!(500);
}

#[test]
fn merged_images_of_both_have_equal_sums() {
    let scratch = Scratch::in_memory();
    let all: Vec<_> = (0..40).map(|at| image_merges::second(at, 20)).collect();
    let path = scratch.path("run.memtrace");
    fs::File::create(&path).unwrap();
    let mut store = Store::create(&path, &header(), SETTINGS.size_limit, 1 << 20).unwrap();
    let mut memory = MemoryBook::new(header(), Bytes(1 << 40));
    for interval in &all {
        store.write(interval, 1, None).unwrap();
        memory.append(interval.clone());
    }
    assert!(store.merge_images().unwrap() && memory.merge_images());
    while store.compact(false).unwrap() {}
    store.finish().unwrap();
    memory.finish();
    let file = Recording::open(&path).unwrap();
    let [of_file, of_memory]: [&dyn Book; 2] = [&file, &memory];
    for index in [0, 10, 20, 39] {
        let at = of_file.intervals()[index].end();
        let merged = |book: &dyn Book| {
            let merged = book.merged_images(Boundary::START, at).unwrap();
            merged
                .into_iter()
                .map(|((group, class), images)| (group.ordinal < 1 << 31, class, images))
                .collect::<Vec<_>>()
        };
        let sorted = |book: &dyn Book| {
            let mut merged: Vec<_> = merged(book).into_iter().map(|merged| format!("{merged:?}")).collect();
            merged.sort_unstable();
            merged
        };
        assert_eq!(sorted(of_file), sorted(of_memory), "{index}");
        let sums = |book: &dyn Book| {
            let totals = book.totals(Boundary::START, at).unwrap();
            let stacks: Quantities = totals.stacks.iter().map(|stack| stack.usage.additive()).sum();
            (stacks, totals.losses, book.images(at).unwrap().len())
        };
        assert_eq!(sums(of_file), sums(of_memory), "{index}");
    }
    let shown = Shown {
        moments: [0, 40],
        is_between_marks: false,
        options: ViewOptions { keeps_parts: false, keep_ended: 2, counts_growth: false, has_timeline: true },
    };
    assert_eq!(difference(&json(of_file, &shown), &json(of_memory, &shown)), None);
}

/// Returns the largest `field` of the processes of a report.
fn latest(json: &str, field: &str) -> f64 {
    let name = format!("\"{field}\":");
    let after = json.split(&name).skip(1);
    let times = after.filter_map(|rest| rest.split([',', '\n', '}']).next()?.parse::<f64>().ok());
    times.fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn ends_of_groups_count_from_the_start_of_the_window() {
    let scratch = Scratch::in_memory();
    let all: Vec<_> = (0..40).map(|at| image_merges::second(at, 20)).collect();
    let (file, _) = stored(&scratch, &all, false);
    let report = |keep_ended| {
        let options = ViewOptions { keeps_parts: false, keep_ended, counts_growth: false, has_timeline: false };
        json(&file, &Shown { moments: [10, 40], is_between_marks: false, options })
    };
    // The window lasts 30 s, and processes end in its last second.
    for json in [report(1000), report(0)] {
        assert!((29.0..=30.0).contains(&latest(&json, "ended_s")), "{}", latest(&json, "ended_s"));
        assert!((29.0..=30.0).contains(&latest(&json, "last_end_s")), "{}", latest(&json, "last_end_s"));
    }
}

#[test]
fn notes_have_the_go_moments_of_their_boundary() {
    let moment = |seconds: u64| Tick::at(Duration::from_secs(seconds));
    let mut book = MemoryBook::new(header(), Bytes(1 << 40));
    let mut before = GoProfileMoments::default();
    for at in 1..4 {
        let now = GoProfileMoments { images: 1, first: moment(1), last: moment(at), ..GoProfileMoments::default() };
        let span = moment(at - 1).since_start()..moment(at).since_start();
        book.append(Interval { span, facts: of_changed_go_profiles(&before, &now), ..Interval::default() });
        before = now;
    }
    let facts = RecordedFacts::new(book.facts(book.end()).unwrap());
    let moments = |interval: usize| Moments::new(&book, &facts, None, book.intervals()[interval].end());
    let notes = |moments: &Moments| go_profile_notes(&book, &facts, moments).unwrap();
    let [first, second, last] = [1, 2, 3].map(|at| format!("+{}", format::duration(moment(at).since_start())));
    for (interval, expected) in
        [first.clone(), format!("{first} to {second}"), format!("{first} to {last}")].into_iter().enumerate()
    {
        let notes = notes(&moments(interval));
        assert!(notes.len() == 1 && notes[0].ends_with(&format!(" first seen at {expected}")), "{notes:?}");
    }
    let of_marks = notes(&moments(1).with_marks(Epoch(1), Vec::new()));
    assert!(of_marks.len() == 2 && of_marks[1].contains("is not read at a mark"), "{of_marks:?}");
}
