use memtrace_model::{
    Amount, Bytes, GroupBy, Metric, Part, Pid, ProcessProfile, Quantities, RunFacts, SampleSource, Sampler, Samplers,
    StackEnd, Variance,
};

use super::*;

/// Returns the message of a process with four samples of 512 KiB, and with exact blocks of 7 bytes in another stack.
fn message(samplers: &[Sampler]) -> Message {
    let mut all = Samplers::default();
    samplers.iter().for_each(|&sampler| all.add(Pid(7), sampler));
    let live = Amount { bytes: Bytes(2 << 20), count: 40 };
    let mut sampled = Quantities::of_blocks([live, live, Amount::default()])
        .with(Quantity::HeldSamples, 4)
        .with(Quantity::AllocSamples, 4);
    sampled.add_variance(Variance::HeldBytes, 4 << 38);
    sampled.add_variance(Variance::AllocBytes, 4 << 38);
    let exact = Quantities::of_blocks([Amount::one(Bytes(7)), Amount::one(Bytes(7)), Amount::default()]);
    let stack = |(usage, end)| StackProfile { usage, ..StackProfile::new(0, Part::WHOLE, [].into(), end) };
    let profile = Profile {
        run: RunFacts { samplers: all, ..RunFacts::default() },
        processes: vec![ProcessProfile::new(Pid(7), "server")],
        stacks: [(sampled, StackEnd::NotTaken), (exact, StackEnd::Failed)].map(stack).into(),
        ..Profile::default()
    };
    let options = Options {
        metric: Metric::LiveBytes,
        by: GroupBy::Process,
        top: 0,
        all_stacks: true,
        subject: String::from("pid 7 (server)"),
    };
    ProfileBuilder::new(&profile, "process").build(&options)
}

fn text(message: &Message, index: i64) -> &str {
    &message.string_table[usize::try_from(index).unwrap()]
}

fn period(message: &Message) -> (&str, &str, i64) {
    let kind = message.period_type.unwrap();
    (text(message, kind.kind), text(message, kind.unit), message.period)
}

/// Returns the numbers among the labels of a sample, each with its key and unit.
fn numbers(message: &Message, sample: usize) -> Vec<(&str, i64, &str)> {
    let labels = message.sample[sample].label.iter().filter(|label| label.str == 0);
    labels.map(|label| (text(message, label.key), label.num, text(message, label.num_unit))).collect()
}

const GO: Sampler = Sampler { source: SampleSource::Go, interval: Some(Bytes(512 << 10)) };

#[test]
fn period_is_the_common_interval_of_the_samplers() {
    let tcmalloc = Sampler { source: SampleSource::Tcmalloc, ..GO };
    assert_eq!(period(&message(&[GO])), ("space", "bytes", 524_288));
    assert_eq!(period(&message(&[GO, tcmalloc])), ("space", "bytes", 524_288));
    let other = Sampler { interval: Some(Bytes(2 << 20)), ..tcmalloc };
    assert_eq!(period(&message(&[GO, other])), ("inuse_space", "bytes", 1));
    assert_eq!(period(&message(&[])), ("inuse_space", "bytes", 1));
}

#[test]
fn samples_have_the_ends_of_their_intervals() {
    let message = message(&[GO]);
    // 4 samples: 1.96·√4.9604 ± 1.9208 = 2.44450 and 6.28610 times 512 KiB, which are 1,281,624 and 3,295,729 bytes.
    let expected = [
        ("pid", 7, ""),
        ("samples", 4, "count"),
        ("inuse_space_low", 2_097_152 - 1_281_624, "bytes"),
        ("inuse_space_high", 2_097_152 + 3_295_729, "bytes"),
        ("alloc_space_low", 2_097_152 - 1_281_624, "bytes"),
        ("alloc_space_high", 2_097_152 + 3_295_729, "bytes"),
    ];
    let found: Vec<_> = numbers(&message, 0).into_iter().filter(|(key, ..)| !key.contains("objects")).collect();
    assert_eq!(found, expected);
    assert_eq!(numbers(&message, 1), [("pid", 7, "")]);
    let comments: Vec<_> = message.comment.iter().map(|&comment| text(&message, comment)).collect();
    let expected = "lost: nothing; estimated: Go's own profile, one sample each 512 KiB";
    assert_eq!(comments, ["memtrace: pid 7 (server)", expected]);
}
