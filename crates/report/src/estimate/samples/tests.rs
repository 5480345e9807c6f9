use std::time::Duration;

use memtrace_model::{
    Bytes, EventClass, ImageEnd, Part, Pid, RunFacts, SampleSource, SampleSum, Sampler, Samplers, StackEnd,
    StackProfile,
};

use super::*;

const INTERVAL: Bytes = Bytes(512 << 10);

/// Returns the profile of a process with a sampler.
fn profile(interval: Option<Bytes>, stacks: &[Quantities]) -> Profile {
    let mut samplers = Samplers::default();
    samplers.add(Pid(7), Sampler { source: SampleSource::Go, interval });
    let stack = |usage: &Quantities| StackProfile {
        usage: *usage,
        ..StackProfile::new(0, Part::WHOLE, [].into(), StackEnd::NotTaken)
    };
    Profile {
        run: RunFacts { samplers, ..RunFacts::default() },
        processes: vec![ProcessProfile::new(Pid(7), "server")],
        stacks: stacks.iter().map(stack).collect(),
        ..Profile::default()
    }
}

/// Returns the totals of a stack, if one block of 64 bytes in eight is sampled. A sample has the variances 512² · 7/8 =
/// 229,376 and 8² · 7/8 = 56, and the units 448 bytes and 7 blocks.
fn sampled(live: u64, alloc: u64) -> Quantities {
    let amount = |samples: u64| Amount { bytes: Bytes(512 * samples), count: 8 * samples };
    let mut usage = Quantities::of_blocks([amount(live), amount(alloc), Amount::default()])
        .with(Quantity::HeldSamples, live)
        .with(Quantity::AllocSamples, alloc);
    usage.add_variance(Variance::HeldBytes, 229_376 * u128::from(live));
    usage.add_variance(Variance::AllocBytes, 229_376 * u128::from(alloc));
    usage.add_variance(Variance::HeldCount, 56 * u128::from(live));
    usage.add_variance(Variance::AllocCount, 56 * u128::from(alloc));
    usage
}

fn exact(live: u64) -> Quantities {
    let live = Amount { bytes: Bytes(live), count: 1 };
    Quantities::of_blocks([live, live, Amount::default()])
}

/// Margins of four samples: 1.96·√(4 · 229,376 + 448² · 0.9604) ± 448 · 1.9208 = 2065.23 ± 860.52 bytes, and 1.96·√(4 · 56 +
/// 7² · 0.9604) ± 7 · 1.9208 = 32.27 ± 13.45 blocks.
const FOUR: [Margin; 2] = [Margin { below: 1205, above: 2926 }, Margin { below: 19, above: 46 }];

fn margins(part: &SampledPart, profile: &Profile, quantities: [Quantity; 2]) -> [Option<Margin>; 2] {
    quantities.map(|quantity| part.uncertainty(profile, quantity).map(Uncertainty::margin))
}

const LIVE: [Quantity; 2] = [Quantity::LiveBytes, Quantity::LiveCount];
const EXIT: [Quantity; 2] = [Quantity::ExitBytes, Quantity::ExitCount];
const ALLOC: [Quantity; 2] = [Quantity::AllocBytes, Quantity::AllocCount];

#[test]
fn each_number_has_the_margin_of_its_samples() {
    let profile = profile(Some(INTERVAL), &[]);
    let part = SampledPart::of_stack(&sampled(4, 8));
    assert_eq!(margins(&part, &profile, LIVE), FOUR.map(Some));
    let freed = [Measure::Bytes, Measure::Count].map(|measure| part.freed_uncertainty(&profile, measure));
    assert_eq!(freed.map(|freed| freed.unwrap().margin()), FOUR, "four of the eight samples were freed");
    // √2 times the deviation: 1.96·√(8 · 229,376 + 448² · 0.9604) = 2791.03.
    assert_eq!(margins(&part, &profile, ALLOC)[0], Some(Margin { below: 1931, above: 3652 }));
    assert_eq!(part.uncertainty(&profile, Quantity::TemporaryBytes), None);
}

#[test]
fn live_memory_and_memory_held_at_exit_are_separate() {
    let mut ended = sampled(4, 8);
    ended.end(ImageEnd::Exit, EventClass::Heap);
    let profile = profile(Some(INTERVAL), &[sampled(8, 8), ended]);
    let part = SampledPart::of_profile(&profile);
    assert_eq!(margins(&part, &profile, EXIT), FOUR.map(Some));
    assert_eq!(margins(&part, &profile, LIVE)[0], Some(Margin { below: 1931, above: 3652 }));
    assert_eq!(part.sum().exit().bytes, Bytes(2048));
}

#[test]
fn exact_blocks_do_not_change_the_error() {
    let profile = profile(Some(INTERVAL), &[sampled(4, 4), exact(1 << 30)]);
    let part = SampledPart::of_profile(&profile);
    assert_eq!(margins(&part, &profile, LIVE), FOUR.map(Some));
    assert_eq!((part.sum().live().bytes, part.is_sampled()), (Bytes(2048), true));
    let processes = SampledProcesses::of(&profile);
    assert_eq!((processes.get(0), processes.get(1)), (part, SampledPart::default()));
    let exact = SampledPart::of_stack(&exact(1 << 30));
    assert_eq!((exact.is_sampled(), margins(&exact, &profile, LIVE)), (false, [None; 2]));
}

#[test]
fn no_sample_is_an_estimate_too() {
    let none = profile(Some(INTERVAL), &[exact(100)]);
    let part = SampledPart::of_profile(&none);
    // 3.8416 · 512 KiB = 2,014,104.8.
    let bytes = Margin { below: 0, above: 2_014_105 };
    assert_eq!(margins(&part, &none, LIVE), [Some(bytes), None]);
    let without = |profile: &Profile| Samples::without(interval_of(profile, |_| true), Measure::Bytes);
    assert_eq!(without(&none).map(Uncertainty::margin), Some(bytes));
    // 512 KiB times the logarithm of 20, 2.995732, is 1,570,626.5.
    assert_eq!(most_without_samples(&none), Some(1_570_626));
    let mut with_other = none.clone();
    let large = Sampler { source: SampleSource::Jemalloc, interval: Some(Bytes(1 << 31)) };
    with_other.run.samplers.add(Pid(9), large);
    assert_eq!(most_without_samples(&with_other), Some(1_570_626), "no process has the other sampler");
    with_other.processes.push(ProcessProfile::new(Pid(9), "other"));
    let of_processes = SampledProcesses::of(&with_other);
    let shown = [0, 1].map(|process| margins(&of_processes.get(process), &with_other, LIVE)[0]);
    // 3.8416 · 2^31 = 8,249,773,182.2.
    assert_eq!(shown, [Some(bytes), Some(Margin { below: 0, above: 8_249_773_183 })]);
    let unknown = profile(None, &[exact(100)]);
    assert_eq!(margins(&SampledPart::of_profile(&unknown), &unknown, LIVE), [None; 2]);
    assert_eq!(most_without_samples(&unknown), None);
    let ended = ProcessProfile { ended: Some(ImageEnd::Exec), ..ProcessProfile::new(Pid(7), "sh") };
    let ended = Profile { processes: vec![ended], ..none };
    assert!(!SampledProcesses::of(&ended).get(0).is_sampled(), "the next image of the process has the sampler");
}

#[test]
fn changes_in_a_window_have_the_variances_of_allocations_and_frees() {
    let mut profile = profile(Some(INTERVAL), &[]);
    profile.run.window = Some(Duration::ZERO..Duration::from_secs(1));
    // Eight blocks were allocated and four freed: 1.96·√(12 · 229,376 + 448² · 0.9604) + 860.52 = 3363.71 + 860.52.
    let symmetric = |distance| Some(Margin { below: distance, above: distance });
    let grown = SampledPart::of_stack(&sampled(4, 8));
    assert_eq!(margins(&grown, &profile, LIVE)[0], symmetric(4225));
    // Three blocks were allocated and eleven freed: 1.96·√(14 · 229,376 + 448² · 0.9604) + 860.52 = 3616.20 + 860.52.
    let mut shrunk = sampled(0, 3);
    shrunk -= sampled(8, 0);
    let shrunk = SampledPart::of_stack(&shrunk);
    assert_eq!(margins(&shrunk, &profile, LIVE)[0], symmetric(4477));
    // Three blocks: 1.96·√(3 · 229,376 + 448² · 0.9604) = 1839.57.
    assert_eq!(margins(&shrunk, &profile, ALLOC)[0], Some(Margin { below: 980, above: 2701 }));
}

/// More samples are too unlikely to matter if at most 150 are expected.
const MOST: u64 = 400;

/// Returns the probability that the number of sampled blocks satisfies `is`, if each of `blocks` blocks is sampled with the
/// probability `sampled`.
fn probability(blocks: u64, sampled: f64, is: impl Fn(u64) -> bool) -> f64 {
    // Logarithm of the probability of `seen` sampled blocks, by the binomial distribution.
    let mut likely = blocks as f64 * (-sampled).ln_1p();
    let odds = (sampled / (1.0 - sampled)).ln();
    let mut sum = 0.0;
    for seen in 0..=blocks.min(MOST) {
        if is(seen) {
            sum += likely.exp();
        }
        likely += ((blocks - seen) as f64 / (seen + 1) as f64).ln() + odds;
    }
    sum
}

/// For blocks of one size, sums the exact probabilities of all numbers of samples whose interval contains the true number of
/// bytes. The probability jumps from one number of blocks to the next one, so it is averaged over all numbers with half to
/// one and a half times as many expected samples.
#[test]
fn intervals_contain_the_true_number_in_95_of_100_cases() {
    let profile = profile(Some(INTERVAL), &[]);
    // 0.001, 0.1, 1 and 3 intervals.
    for size in [524_u64, 52_429, 524_288, 1_572_864] {
        let sampled = -f64::exp_m1(-(size as f64 / INTERVAL.0 as f64));
        #[expect(clippy::cast_sign_loss, reason = "no number is below zero")]
        let blocks_of = |samples: f64| (samples / sampled).round() as u64;
        let ends = |samples: u64| {
            let SampleSum { amount, spread } = SampleSum::of_poisson(samples, Bytes(size), INTERVAL, 1);
            let usage = Quantities::of_blocks([amount, amount, Amount::default()]).with_spreads(spread, spread);
            let mut part = SampledPart { is_sampled: true, ..SampledPart::default() };
            part.add_stack(&usage);
            part.uncertainty(&profile, Quantity::LiveBytes).unwrap().ends(amount.bytes.0)
        };
        let ends: Vec<_> = (0..=MOST).map(ends).collect();
        for expected in [5.0, 20.0, 100.0] {
            let truths = blocks_of(expected / 2.0).max(1)..=blocks_of(expected * 1.5);
            let step = (truths.end() - truths.start()).div_ceil(200).max(1);
            let contains = |blocks: u64| {
                probability(blocks, sampled, |seen| {
                    usize::try_from(seen).is_ok_and(|seen| {
                        ends.get(seen).is_some_and(|[low, high]| (*low..=*high).contains(&(blocks * size)))
                    })
                })
            };
            let all: Vec<_> = truths.step_by(usize::try_from(step).unwrap()).map(contains).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            assert!((0.93..0.97).contains(&mean), "{expected} samples of {size} bytes: {mean}");
        }
    }
}
