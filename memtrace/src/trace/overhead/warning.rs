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

/// Maximum share of the overhead that remains without stacks, unless the rest is tolerable. The stacks are most of
/// the content of a report, so the advice to leave them out must save about half of the overhead.
const WORTH_THE_STACKS: f64 = 0.55;

/// Number of samples a second of a sampled trace, unless the target allocates less often.
const SAMPLES_PER_SECOND: f64 = 1000.0;

/// Processor time of a sample with its stack, and of a call of a patched allocator with the free of its block, in seconds. From
/// `cargo run -p bench -- sampled`.
const SAMPLE: f64 = 6e-6;
const PATCHED_CALL: f64 = 1.2e-9;

/// Options of the trace that change its cost.
#[derive(Clone, Copy, Debug)]
pub(in crate::trace) struct CostOptions {
    /// Minimum size of a traced allocation.
    pub(in crate::trace) min_size: Bytes,
    /// True if memtrace may change code of the target: it then takes samples if the overhead exceeds the limit of the
    /// user.
    pub(in crate::trace) allows_patching: bool,
}

/// Returns a warning if tracing allocations is expected to take too much of the target's processor time.
pub(super) fn warning(load: &Load, costs: CallCosts, in_use: CostOptions) -> Option<String> {
    let Excess { options, .. } = excess(load, costs, in_use)?;
    let options = options.into_iter().map(|(option, share)| (option, format::rough_percent(share)));
    Some(format!("{}; {}", headline(), advice(options.collect(), "lowers it to about", "to about", "")))
}

/// Returns a warning if tracing allocations takes too much of the target's processor time. Some costs, such as misses of a cold
/// cache, are not measured. The total share is therefore uncertain, and the warning states the part that an option saves.
pub(super) fn measured_warning(load: &Load, costs: CallCosts, in_use: CostOptions) -> Option<String> {
    Some(format!("{}; {}", headline(), savings(excess(load, costs, in_use)?)))
}

/// Returns a note for the report if tracing allocations took too much of the target's processor time.
pub(super) fn note(load: &Load, costs: CallCosts, in_use: CostOptions) -> Option<String> {
    let excess = excess(load, costs, in_use)?;
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

fn excess(load: &Load, costs: CallCosts, in_use: CostOptions) -> Option<Excess> {
    let CostOptions { min_size, allows_patching } = in_use;
    let Estimate { processors, slowdown, .. } = estimate(load, costs, min_size);
    let share = slowdown.filter(|&share| share > TOLERATED && processors > NEGLIGIBLE)?;
    let lowered = |costs, size| estimate(load, costs, size).slowdown.filter(|&rest| rest <= share * WORTHWHILE);
    let without_stacks = lowered(CallCosts { stack: Duration::ZERO, ..costs }, min_size)
        .filter(|&rest| rest <= TOLERATED || rest <= share * WORTH_THE_STACKS);
    let size = worthwhile_size(load, costs, min_size);
    let options = [
        (
            String::from("--allow-patching (samples, and changes code of the target)"),
            sampled(load).filter(|&rest| !allows_patching && rest <= share * WORTHWHILE),
        ),
        (String::from("--max-depth 0 (without stacks)"), without_stacks),
        (format!("--min-size {}", format::size_argument(size.0)), lowered(costs, size)),
    ];
    let options = options.into_iter().filter_map(|(option, rest)| Some((option, rest?)));
    Some(Excess { share, options: options.collect() })
}

/// Returns the share of the target's processor time that samples would take; `None` if no allocator can be patched on this
/// processor, or if the target was idle.
fn sampled(load: &Load) -> Option<f64> {
    if !cfg!(target_arch = "x86_64") || load.own.is_zero() {
        return None;
    }
    let calls = load.all_calls() as f64;
    let samples = calls.min(SAMPLES_PER_SECOND * load.during.as_secs_f64());
    Some((samples * SAMPLE + calls * PATCHED_CALL) / load.own.as_secs_f64())
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

    const NONE: CostOptions = CostOptions { min_size: Bytes(0), allows_patching: false };

    fn warned(counts: &[(u64, u64)]) -> Option<String> {
        warning(&load(counts), COSTS, NONE)
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
        // One second: the target works for 10 ms, and tracing takes 4 µs a call.
        let idle = |calls| Load { own: Duration::from_millis(10), ..load(&[(64, calls)]) };
        let messages = |calls| [warning, measured_warning, note].map(|message| message(&idle(calls), COSTS, NONE));
        assert!(messages(12_400).iter().all(Option::is_none));
        assert!(messages(12_600).iter().all(Option::is_some));
    }

    #[test]
    fn samples_cost_their_stacks_and_the_patched_calls() {
        // 1,000 samples of 6 µs, and 1,000,000 calls of 1.2 ns.
        let share = |counts: &[(u64, u64)]| sampled(&load(counts)).unwrap_or(0.0072);
        assert!((share(&[(64, 1_000_000)]) - 0.0072).abs() < 1e-9);
        // There cannot be more samples than calls.
        let few = sampled(&load(&[(64, 100)])).unwrap_or(0.000_600_12);
        assert!((few - 0.000_600_12).abs() < 1e-9, "{few}");
        assert_eq!(sampled(&Load { own: Duration::ZERO, ..load(&[(64, 100)]) }), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn options_are_named_with_their_effect() {
        // 40 % with all; 0.6 % with samples; 20 % without stacks; with 128 bytes 10 % for the traps and 3 % for the large blocks.
        let mixed = [(64, 90_000), (4096, 10_000)];
        assert_eq!(
            warned(&mixed).unwrap(),
            "warning: this is more than 25 % of the target's processor time; --allow-patching (samples, and changes code \
             of the target) lowers it to about 0.6 %, --max-depth 0 (without stacks) to about 20 %, --min-size 128 to \
             about 13 %"
        );
        assert_eq!(
            measured_warning(&load(&mixed), COSTS, NONE).unwrap(),
            "warning: this is more than 25 % of the target's processor time; --allow-patching (samples, and changes code \
             of the target) saves about 98 % of it, --max-depth 0 (without stacks) about 50 %, --min-size 128 about 68 %"
        );
        assert_eq!(
            note(&load(&mixed), COSTS, NONE).unwrap(),
            "tracing took at least 40 % of the target's processor time; --allow-patching (samples, and changes code of the \
             target) saves about 98 % of it, --max-depth 0 (without stacks) about 50 %, --min-size 128 about 68 %"
        );
    }

    #[test]
    fn option_in_use_is_not_named() {
        let in_use = CostOptions { allows_patching: true, ..NONE };
        let messages = [warning, measured_warning, note].map(|message| {
            let text = message(&load(&[(64, 90_000), (4096, 10_000)]), COSTS, in_use).unwrap();
            text.split_once("; ").unwrap().1.to_owned()
        });
        let saved = "--max-depth 0 (without stacks) saves about 50 % of it, --min-size 128 about 68 %";
        assert_eq!(
            messages,
            ["--max-depth 0 (without stacks) lowers it to about 20 %, --min-size 128 to about 13 %", saved, saved]
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn stacks_are_kept_if_they_save_little() {
        // 3 µs a call, 2 µs without its stack.
        let costs = CallCosts { stack: Duration::from_micros(1), ..COSTS };
        let text = |calls| warning(&load(&[(64, calls)]), costs, NONE).unwrap();
        let expected = "of the target) lowers it to about 0.7 %, --min-size 128 to about 50 %";
        assert!(text(500_000).ends_with(expected), "{}", text(500_000));
        // The overhead is tolerable without stacks.
        assert!(text(100_000).contains("--max-depth 0 (without stacks) to about 20 %"), "{}", text(100_000));
    }

    #[test]
    fn option_without_effect_is_not_named() {
        let costs = CallCosts { record: Duration::ZERO, stack: Duration::ZERO, ..COSTS };
        let text = warning(&load(&[(64, 500_000)]), costs, NONE).unwrap();
        assert!(!text.contains("--m"), "{text}");
        assert!(advice(Vec::new(), "", "", "").contains("memtrace faults --sample 64"));
        // The traps alone take 50 %: no size is enough, and 128 filters all calls.
        assert!(warned(&[(64, 500_000)]).unwrap().contains("--min-size 128 to about 50 %"));
    }
}
