//! Warning about a high overhead, with the options that lower it.

use std::time::Duration;

use memtrace_model::{Bytes, format};

use super::estimate::{Estimate, estimate, min_size_of_few, minimum_sizes, of_target};
use super::load::{CallCosts, Load};

/// An overhead above this share of the target's processor time deserves a warning.
const TOLERATED: f64 = 0.25;

/// An overhead of at most this share of one processor needs no warning: a target that is nearly idle makes any share of
/// its processor time large, and has time to spare.
const NEGLIGIBLE: f64 = 0.05;

/// Maximum share of the overhead that remains with an option. An option that leaves more is not
/// named.
const WORTHWHILE: f64 = 0.9;

/// Maximum share of the overhead that remains without stacks, unless the rest is tolerable. The stacks are most of what
/// a report says, so only about half of the overhead is worth them.
const WORTH_THE_STACKS: f64 = 0.55;

/// Returns a warning if tracing allocations of at least `min_size` is expected to take too much of the target's
/// processor time.
pub(super) fn warning(load: &Load, costs: CallCosts, min_size: Bytes) -> Option<String> {
    let Excess { options, .. } = excess(load, costs, min_size)?;
    let options = options.into_iter().map(|(option, share)| (option, format::rough_percent(share)));
    Some(format!("{}; {}", headline(), advice(options.collect(), "lowers it to about", "to about", "")))
}

/// Returns a warning if tracing allocations of at least `min_size` takes too much of the target's
/// processor time. Some costs, such as misses of a cold cache, are not measured. The total share is therefore
/// uncertain, and the warning states the part that an option saves.
pub(super) fn measured_warning(load: &Load, costs: CallCosts, min_size: Bytes) -> Option<String> {
    Some(format!("{}; {}", headline(), savings(excess(load, costs, min_size)?)))
}

/// Returns a note for the report if tracing allocations of at least `min_size` took too much of the target's processor
/// time.
pub(super) fn note(load: &Load, costs: CallCosts, min_size: Bytes) -> Option<String> {
    let excess = excess(load, costs, min_size)?;
    Some(format!("tracing took at least {}; {}", of_target(excess.share), savings(excess)))
}

fn headline() -> String {
    format!("warning: this is more than {}", of_target(TOLERATED))
}

fn savings(Excess { share, options }: Excess) -> String {
    let saved = |(option, rest): (String, f64)| (option, format::rough_percent((share - rest) / share));
    advice(options.into_iter().map(saved).collect(), "saves about", "about", " of it")
}

/// Lists options with their effects. `first` precedes the effect of the first option, and `then`
/// the effects of the others.
fn advice(options: Vec<(String, String)>, first: &str, then: &str, after_first: &str) -> String {
    let mut options = options.into_iter();
    let Some((option, effect)) = options.next() else {
        return String::from("`memtrace faults --sample 64` costs a fraction, and shows resident pages");
    };
    let others = options.map(|(option, effect)| format!(", {option} {then} {effect}"));
    format!("{option} {first} {effect}{after_first}{}", others.collect::<String>())
}

/// Overhead above both [`TOLERATED`] and [`NEGLIGIBLE`].
struct Excess {
    /// Share of the target's processor time that tracing takes.
    share: f64,
    /// Options that lower the overhead, with the share of the target's processor time that tracing takes with the option.
    options: Vec<(String, f64)>,
}

fn excess(load: &Load, costs: CallCosts, min_size: Bytes) -> Option<Excess> {
    let Estimate { processors, slowdown, .. } = estimate(load, costs, min_size);
    let share = slowdown.filter(|&share| share > TOLERATED && processors > NEGLIGIBLE)?;
    let lowered = |costs, size| estimate(load, costs, size).slowdown.filter(|&rest| rest <= share * WORTHWHILE);
    let without_stacks = lowered(CallCosts { stack: Duration::ZERO, ..costs }, min_size)
        .filter(|&rest| rest <= TOLERATED || rest <= share * WORTH_THE_STACKS);
    let size = worthwhile_size(load, costs, min_size);
    let options = [
        (String::from("--max-depth 0 (without stacks)"), without_stacks),
        (format!("--min-size {}", format::size_argument(size.0)), lowered(costs, size)),
    ];
    let options = options.into_iter().filter_map(|(option, rest)| Some((option, rest?)));
    Some(Excess { share, options: options.collect() })
}

/// Returns the smallest size above `min_size` that makes the overhead tolerable, or else the smallest size that filters
/// most of the calls.
fn worthwhile_size(load: &Load, costs: CallCosts, min_size: Bytes) -> Bytes {
    let is_tolerated = |&size: &Bytes| estimate(load, costs, size).slowdown.is_some_and(|share| share <= TOLERATED);
    let tolerated = minimum_sizes().filter(|&size| size > min_size).find(is_tolerated);
    tolerated.or_else(|| min_size_of_few(load, min_size)).unwrap_or(min_size)
}

#[cfg(test)]
mod tests {
    use memtrace_model::CallsBySize;

    use super::super::load::TEST_COSTS as COSTS;
    use super::*;

    /// Calls in one second of the target's own time.
    fn load(counts: &[(u64, u64)]) -> Load {
        let second = Duration::from_secs(1);
        let calls: CallsBySize = counts.iter().map(|&(size, count)| (Bytes(size), count)).collect();
        Load { calls, filtered: 0, hits: COSTS.hits_of(calls.total()), during: second, own: second }
    }

    fn warned(counts: &[(u64, u64)]) -> Option<String> {
        warning(&load(counts), COSTS, Bytes(0))
    }

    #[test]
    fn quarter_of_the_targets_time_is_tolerated() {
        // Each call costs 4 µs.
        assert_eq!(warned(&[(64, 62_500)]), None);
        assert!(warned(&[(64, 62_600)]).is_some());
        assert_eq!(warned(&[]), None);
    }

    #[test]
    fn small_share_of_one_processor_is_tolerated() {
        // One second in which the target works for 10 ms, and tracing takes 4 µs a call.
        let idle = |calls| Load { own: Duration::from_millis(10), ..load(&[(64, calls)]) };
        let messages = |calls| [warning, measured_warning, note].map(|message| message(&idle(calls), COSTS, Bytes(0)));
        assert!(messages(12_400).iter().all(Option::is_none));
        assert!(messages(12_600).iter().all(Option::is_some));
    }

    #[test]
    fn options_are_named_with_their_effect() {
        // 40 % with all; 20 % without stacks; with 128 bytes 10 % for the traps and 3 % for the large blocks.
        let mixed = [(64, 90_000), (4096, 10_000)];
        assert_eq!(
            warned(&mixed).unwrap(),
            "warning: this is more than 25 % of the target's processor time; --max-depth 0 (without stacks) lowers it \
             to about 20 %, --min-size 128 to about 13 %"
        );
        assert_eq!(
            measured_warning(&load(&mixed), COSTS, Bytes(0)).unwrap(),
            "warning: this is more than 25 % of the target's processor time; --max-depth 0 (without stacks) saves \
             about 50 % of it, --min-size 128 about 68 %"
        );
        assert_eq!(
            note(&load(&mixed), COSTS, Bytes(0)).unwrap(),
            "tracing took at least 40 % of the target's processor time; --max-depth 0 (without stacks) saves about \
             50 % of it, --min-size 128 about 68 %"
        );
    }

    #[test]
    fn stacks_are_kept_if_they_save_little() {
        // 3 µs a call, 2 µs without its stack.
        let costs = CallCosts { stack: Duration::from_micros(1), ..COSTS };
        let text = |calls| warning(&load(&[(64, calls)]), costs, Bytes(0)).unwrap();
        assert!(text(500_000).ends_with("time; --min-size 128 lowers it to about 50 %"), "{}", text(500_000));
        // The overhead is tolerable without stacks.
        assert!(text(100_000).contains("--max-depth 0 (without stacks) lowers it to about 20 %"), "{}", text(100_000));
    }

    #[test]
    fn option_without_effect_is_not_named() {
        let costs = CallCosts { record: Duration::ZERO, stack: Duration::ZERO, ..COSTS };
        let text = warning(&load(&[(64, 500_000)]), costs, Bytes(0)).unwrap();
        assert!(!text.contains("--m") && text.contains("memtrace faults --sample 64"), "{text}");
        // The traps alone take 50 %: no size is enough, and 128 filters all calls.
        assert!(warned(&[(64, 500_000)]).unwrap().contains("--min-size 128 to about 50 %"));
    }
}
