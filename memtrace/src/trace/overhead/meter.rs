//! Measurement of the overhead during a trace.
//!
//! An estimate does not suffice: a command cannot be observed before it runs, and a running process
//! can change.

use std::time::{Duration, Instant};

use memtrace_host::kernel::ProbeHits;
use memtrace_model::{Bytes, CallsBySize};

use super::estimate::{estimate, min_size_of_few, min_size_within};
use super::guard::{Action, OverheadGuard};
use super::load::{CallCosts, Load};
use super::warning::{self, CostOptions};
use crate::options::units::Percent;

/// Minimum length of a period.
const PERIOD: Duration = Duration::from_secs(1);

/// Minimum length of a period that is compared with the limit.
const LIMIT_PERIOD: Duration = Duration::from_secs(5);

/// A raised minimum size aims at this share of the limit, because the load varies.
const AIM: f64 = 0.75;

/// Minimum processor time of the targets in a period. The time of child processes is known in steps of 10 ms.
const LEAST_BUSY: Duration = Duration::from_millis(100);

/// Minimum of the targets' own processor time, as a share of the time that tracing takes. With it, the highest
/// overhead that a message states is "at least 300 %".
const LEAST_OWN: f64 = 1.0 / 3.0;

/// Allocations and processor time of the targets from the start of the trace to one moment.
#[derive(Clone, Copy, Debug)]
pub(in crate::trace) struct Sample {
    pub(in crate::trace) at: Instant,
    /// Number of recorded allocations, by size.
    pub(in crate::trace) calls: CallsBySize,
    /// Number of allocations that were filtered or lost.
    pub(in crate::trace) not_recorded: u64,
    pub(in crate::trace) hits: ProbeHits,
    /// Processor time of the targets.
    pub(in crate::trace) processor_time: Duration,
    /// Processor time of all processes but memtrace; `None` if it is not known.
    pub(in crate::trace) machine_time: Option<Duration>,
    /// Number of ended targets with unknown processor time.
    pub(in crate::trace) missing: usize,
    /// Number of ended targets with parents that may have got their processor time.
    pub(in crate::trace) passed: usize,
}

/// Reaction to the overhead of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) enum Reaction {
    None,
    /// Record only allocations of at least this size.
    Raise(Bytes),
    /// End the trace.
    Detach,
}

/// Monitor of the overhead during a trace.
pub(in crate::trace) struct OverheadMeter {
    costs: CallCosts,
    options: CostOptions,
    /// True if the user has received a warning.
    has_warned: bool,
    /// Sample at the start of the current period.
    start: Option<Sample>,
    /// Load of all measured periods. It includes the time that tracing took.
    total: Load,
    /// Comparison with the limit; `None` without a limit.
    limit: Option<LimitCheck>,
}

/// Comparison of the overhead with the limit of the user.
struct LimitCheck {
    guard: OverheadGuard,
    /// Size of the largest recorded allocation.
    max_size: Bytes,
    /// Sample at the start of the current period.
    start: Option<Sample>,
}

impl OverheadMeter {
    /// Creates a monitor of a trace.
    pub(in crate::trace) fn new(costs: CallCosts, options: CostOptions, has_warned: bool) -> Self {
        Self { costs, options, has_warned, start: None, total: Load::default(), limit: None }
    }

    /// Adds a limit of the overhead. `max_size`: maximum size of a traced allocation.
    pub(in crate::trace) fn with_limit(self, limit: Percent, max_size: Bytes) -> Self {
        Self { limit: Some(LimitCheck { guard: OverheadGuard::new(limit), max_size, start: None }), ..self }
    }

    /// Compares the overhead with the limit, once in [`LIMIT_PERIOD`].
    pub(in crate::trace) fn react(&mut self, sample: Sample) -> Reaction {
        let Self { costs, options: CostOptions { min_size, .. }, .. } = *self;
        let Some(LimitCheck { guard, max_size, start: period_start }) = &mut self.limit else { return Reaction::None };
        let start = *period_start.get_or_insert(sample);
        if sample.at.duration_since(start.at) < LIMIT_PERIOD {
            return Reaction::None;
        }
        *period_start = Some(sample);
        // Targets that hardly run are not slowed down, so they count as a load of zero.
        let load = bounded_load(start, sample).filter(|load| load.own >= LEAST_BUSY).unwrap_or_default();
        let load = without_cost(load, costs, min_size);
        let overhead = estimate(&load, costs, min_size).slowdown.unwrap_or_default();
        match guard.check(start.at..sample.at, overhead) {
            Action::Keep => Reaction::None,
            Action::Raise => raised_size(&load, costs, min_size, guard.limit())
                .filter(|size| *size <= *max_size)
                .map_or(Reaction::Detach, Reaction::Raise),
            Action::Detach => Reaction::Detach,
        }
    }

    /// Returns true if the current period is long enough to end with a sample at `now`.
    pub(in crate::trace) fn is_due(&self, now: Instant) -> bool {
        self.start.is_none_or(|start| now.duration_since(start.at) >= PERIOD)
    }

    /// Measures the period from the last sample to `sample`. Returns messages for the user when tracing takes much of
    /// the target's processor time for the first time.
    pub(in crate::trace) fn update(&mut self, sample: Sample) -> Vec<String> {
        let Some(load) = self.end_period(sample, LEAST_BUSY) else { return Vec::new() };
        let CostOptions { min_size, .. } = self.options;
        let load = without_cost(load, self.costs, min_size);
        match warning::measured_warning(&load, self.costs, self.options).filter(|_| !self.has_warned) {
            Some(warning) => {
                self.has_warned = true;
                vec![estimate(&load, self.costs, min_size).measured(), warning]
            }
            None => Vec::new(),
        }
    }

    /// Measures the last period. Returns a note for the report if tracing took much of the target's processor time.
    pub(in crate::trace) fn finish(mut self, sample: Sample) -> Option<String> {
        self.end_period(sample, Duration::ZERO);
        let load = without_cost(self.total, self.costs, self.options.min_size);
        (self.total.own >= LEAST_BUSY).then(|| warning::note(&load, self.costs, self.options))?
    }

    /// Ends the current period if the targets have used at least `least` of processor time. Returns the load of the
    /// period; `None` if the period continues, or if the processor time is unknown.
    fn end_period(&mut self, sample: Sample, least: Duration) -> Option<Load> {
        let start = *self.start.get_or_insert(sample);
        let busy = sample.processor_time.checked_sub(start.processor_time);
        let Some(busy) = busy.filter(|_| sample.missing == start.missing) else {
            // The time of a child that has just ended is missing until its parent waits for it, so the period goes on
            // for a while.
            let may_return = sample.missing == start.missing && sample.at.duration_since(start.at) < 2 * PERIOD;
            self.start = Some(if may_return { start } else { sample });
            return None;
        };
        if busy < least || busy.is_zero() {
            return None;
        }
        self.start = Some(sample);
        let load = load_between(start, sample, busy);
        let (hits, total) = (load.hits, self.total.hits);
        self.total = Load {
            calls: self.total.calls + load.calls,
            filtered: self.total.filtered + load.filtered,
            hits: ProbeHits {
                entries: total.entries + hits.entries,
                returns: total.returns + hits.returns,
                others: total.others + hits.others,
            },
            during: self.total.during + load.during,
            own: self.total.own + load.own,
        };
        Some(load)
    }
}

/// Returns the load between two samples. `busy`: processor time of the targets.
fn load_between(start: Sample, end: Sample, busy: Duration) -> Load {
    Load {
        calls: end.calls - start.calls,
        filtered: end.not_recorded.saturating_sub(start.not_recorded),
        hits: end.hits.since(start.hits),
        during: end.at.duration_since(start.at),
        own: busy,
    }
}

/// Returns the load between two samples. If a target has ended, the time of the machine takes the place of the targets' time.
/// The time of the machine is at least as long, so the real overhead is at least as high as the measured one. A parent gets the
/// time of its child only if it waits for the child, and does not ignore SIGCHLD (getrusage(2)).
fn bounded_load(start: Sample, end: Sample) -> Option<Load> {
    let busy = match end.processor_time.checked_sub(start.processor_time) {
        Some(busy) if (end.missing, end.passed) == (start.missing, start.passed) => busy,
        _ => end.machine_time?.checked_sub(start.machine_time?)?,
    };
    Some(load_between(start, end, busy))
}

/// Returns the load without the time that tracing took. At least the share [`LEAST_OWN`] of this time remains: if
/// tracing takes nearly all the time, the difference is within the error of the cost.
fn without_cost(load: Load, costs: CallCosts, min_size: Bytes) -> Load {
    let cost = load.cost(costs, min_size);
    let load = load.without(cost);
    Load { own: load.own.max(Duration::from_secs_f64(cost * LEAST_OWN)), ..load }
}

/// Returns the minimum size to raise `min_size` to: the smallest size that keeps the overhead below the limit. If there is
/// none, returns the smallest size that filters most of the recorded calls. `None` if no call is recorded.
fn raised_size(load: &Load, costs: CallCosts, min_size: Bytes, limit: f64) -> Option<Bytes> {
    let size = min_size_within(load, costs, limit * AIM).or_else(|| min_size_of_few(load, min_size))?;
    (load.calls.total() > 0 && size > min_size).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::super::load::TEST_COSTS as COSTS;
    use super::*;

    /// Target with one sample per second.
    struct Target {
        start: Instant,
        meter: OverheadMeter,
    }

    impl Target {
        fn new(min_size: u64, has_warned: bool) -> Self {
            let options = CostOptions { min_size: Bytes(min_size), allows_patching: false };
            Self { start: Instant::now(), meter: OverheadMeter::new(COSTS, options, has_warned) }
        }

        fn sample(&self, seconds: u64, calls: u64, busy_ms: u64) -> Sample {
            Sample {
                at: self.start + Duration::from_secs(seconds),
                calls: [(Bytes(64), calls)].into_iter().collect(),
                not_recorded: 0,
                hits: COSTS.hits_of(calls),
                processor_time: Duration::from_millis(busy_ms),
                machine_time: None,
                missing: 0,
                passed: 0,
            }
        }

        fn update(&mut self, seconds: u64, calls: u64, busy_ms: u64) -> Vec<String> {
            let sample = self.sample(seconds, calls, busy_ms);
            self.meter.update(sample)
        }

        fn finish(self, seconds: u64, calls: u64, busy_ms: u64) -> Option<String> {
            let sample = self.sample(seconds, calls, busy_ms);
            self.meter.finish(sample)
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn first_busy_period_is_warned_of_once() {
        let mut target = Target::new(0, false);
        assert!(target.meter.is_due(target.start));
        assert_eq!(target.update(0, 0, 50), [""; 0]);
        assert!(!target.meter.is_due(target.start + PERIOD / 2));
        assert!(target.meter.is_due(target.start + PERIOD));
        // Tracing takes 40 ms of 240 ms.
        assert_eq!(target.update(1, 10_000, 290), [""; 0]);
        // Tracing takes 400 ms of 900 ms.
        let expected = [
            "at 100000 allocations per second, tracing takes at least 40 % of one processor, 80 % of the target's \
             processor time",
            "warning: this is more than 25 % of the target's processor time; --allow-patching (samples, and changes code \
             of the target) saves about 98 % of it, --max-depth 0 (without stacks) about 50 %, --min-size 128 about 75 %",
        ];
        assert_eq!(target.update(2, 110_000, 1190), expected);
        assert_eq!(target.update(3, 210_000, 2090), [""; 0]);
        // In all, tracing takes 840 ms of 2040 ms.
        let note = target.finish(3, 210_000, 2090).unwrap();
        assert!(note.starts_with("tracing took at least 70 % of the target's processor time; "), "{note}");
    }

    #[test]
    fn short_run_has_a_note_if_the_target_was_busy() {
        let mut target = Target::new(0, false);
        target.update(0, 0, 0);
        assert!(target.finish(0, 20_000, 120).unwrap().starts_with("tracing took at least 200 % "));
        let mut target = Target::new(0, false);
        target.update(0, 0, 0);
        assert_eq!(target.finish(0, 10_000, 60), None);
    }

    #[test]
    fn cost_near_the_whole_time_is_not_exact() {
        for busy_ms in [410, 400, 300] {
            let mut target = Target::new(0, false);
            target.update(0, 0, 0);
            let note = target.finish(1, 100_000, busy_ms).unwrap();
            assert!(note.starts_with("tracing took at least 300 % "), "{note}");
        }
    }

    #[test]
    fn period_lasts_until_the_target_has_worked() {
        let mut target = Target::new(0, false);
        target.update(0, 0, 0);
        assert_eq!(target.update(1, 15_000, 90), [""; 0]);
        assert!(target.update(2, 30_000, 180)[0].starts_with("at 15000 allocations per second"));
    }

    #[test]
    fn nearly_idle_target_has_no_warning_or_note() {
        let mut target = Target::new(0, false);
        target.update(0, 0, 0);
        // Tracing takes 80 ms of 120 ms in two seconds: 200 % of the target's processor time, 4 % of one processor.
        assert_eq!(target.update(2, 20_000, 120), [""; 0]);
        // Tracing takes 100 ms of 150 ms in one second.
        assert_eq!(target.update(3, 45_000, 270).len(), 2);
        // In all, it takes 180 ms of 280 ms in four seconds.
        assert_eq!(target.finish(4, 45_000, 280), None);
    }

    #[test]
    fn period_with_a_missing_process_is_not_measured() {
        let mut target = Target::new(0, false);
        target.update(0, 0, 500);
        // The time of a process that has ended is missing, but its calls are counted.
        let one_ended = Sample { missing: 1, ..target.sample(1, 100_000, 900) };
        assert_eq!(target.meter.update(one_ended), [""; 0]);
        let two_ended = Sample { missing: 2, ..target.sample(2, 200_000, 1300) };
        assert_eq!(target.meter.finish(two_ended), None);
    }

    #[test]
    fn time_of_a_child_is_missing_until_its_parent_waits() {
        let mut target = Target::new(0, false);
        target.update(0, 0, 500);
        let sample = target.sample(1, 100_000, 0);
        assert_eq!(target.meter.update(sample), [""; 0]);
        // Tracing takes 400 ms of 1 s.
        let returned = Sample { at: sample.at + PERIOD / 10, ..target.sample(1, 100_000, 1500) };
        assert_eq!(target.meter.update(returned).len(), 2);
        // No parent waits for this child.
        let mut target = Target::new(0, false);
        target.update(0, 0, 500);
        assert_eq!(target.update(2, 100_000, 0), [""; 0]);
        assert_eq!(target.update(3, 110_000, 1000), [""; 0]);
    }

    #[test]
    fn filtered_calls_cost_their_traps_only() {
        let mut target = Target::new(128, false);
        target.update(0, 0, 0);
        let hits = |calls| COSTS.hits_of(calls);
        let few = Sample { not_recorded: 100_000, hits: hits(100_000), ..target.sample(1, 0, 1000) };
        assert_eq!(target.meter.update(few), [""; 0]);
        // Tracing takes 400 ms of 1 s; in all, 500 ms of 2 s.
        let many = Sample { not_recorded: 500_000, hits: hits(500_000), ..target.sample(2, 0, 2000) };
        let warned = target.meter.update(many);
        let advice = if cfg!(target_arch = "x86_64") { "--allow-patching" } else { "faults --sample 64" };
        assert!(warned[0].ends_with("67 % of the target's processor time") && warned[1].contains(advice), "{warned:?}");
        assert!(target.meter.finish(many).unwrap().starts_with("tracing took at least 33 % "));
    }

    #[test]
    fn warning_of_the_estimate_is_not_repeated() {
        let mut target = Target::new(0, true);
        target.update(0, 0, 0);
        assert_eq!(target.update(1, 100_000, 500), [""; 0]);
        assert!(target.finish(2, 200_000, 1000).is_some());
    }

    /// Target with a limit of 10 %, and the numbers of its calls of 64 bytes and of 4 KiB so far.
    struct LimitedTarget {
        target: Target,
        calls: [u64; 2],
        seconds: u64,
    }

    impl LimitedTarget {
        fn new(max_size: u64) -> Self {
            let Target { start, meter } = Target::new(0, true);
            let meter = meter.with_limit(Percent(10), Bytes(max_size));
            let mut limited = Self { target: Target { start, meter }, calls: [0; 2], seconds: 0 };
            assert_eq!(limited.react(|sample| sample), Reaction::None);
            limited
        }

        /// Passes a sample at the present time, changed by `change`, to the meter. The target is always busy.
        fn react(&mut self, change: impl FnOnce(Sample) -> Sample) -> Reaction {
            let [small, large] = self.calls;
            let sample = Sample {
                calls: [(Bytes(64), small), (Bytes(4096), large)].into_iter().collect(),
                ..self.target.sample(self.seconds, small + large, self.seconds * 1000)
            };
            self.target.meter.react(change(sample))
        }

        /// Runs for five seconds with this number of calls.
        fn run(&mut self, [small, large]: [u64; 2]) -> Reaction {
            self.calls = [self.calls[0] + small, self.calls[1] + large];
            self.seconds += 5;
            self.react(|sample| sample)
        }
    }

    #[test]
    fn smallest_sufficient_minimum_size_is_chosen() {
        let mut target = LimitedTarget::new(u64::MAX);
        // 200,000 allocations take 800 ms of 5 s, and 200 ms if they are filtered.
        let calls = [190_000, 10_000];
        assert_eq!([target.run(calls), target.run(calls)], [Reaction::None; 2]);
        assert_eq!(target.run(calls), Reaction::Raise(Bytes(128)));
    }

    #[test]
    fn trace_ends_if_the_traps_alone_exceed_the_limit() {
        let mut target = LimitedTarget::new(u64::MAX);
        let calls = [900_000, 1_000];
        assert_eq!([target.run(calls), target.run(calls)], [Reaction::None; 2]);
        // This size filters most allocations.
        assert_eq!(target.run(calls), Reaction::Raise(Bytes(128)));
        let after = [target.run(calls), target.run(calls), target.run(calls)];
        assert_eq!(after, [Reaction::None, Reaction::None, Reaction::Detach]);
    }

    #[test]
    fn trace_ends_if_no_size_would_be_recorded() {
        let mut target = LimitedTarget::new(100);
        let calls = [900_000, 0];
        assert_eq!([target.run(calls), target.run(calls)], [Reaction::None; 2]);
        assert_eq!(target.run(calls), Reaction::Detach);
    }

    #[test]
    fn period_without_calls_is_within_the_limit() {
        let mut target = LimitedTarget::new(u64::MAX);
        let calls = [900_000, 0];
        assert_eq!([target.run(calls), target.run(calls), target.run([0; 2])], [Reaction::None; 3]);
        assert_eq!([target.run(calls), target.run(calls)], [Reaction::None; 2]);
    }

    #[test]
    fn time_of_the_machine_replaces_that_of_ended_targets() {
        let after = |machine_ms: u64, [missing, passed]: [usize; 2]| {
            let mut target = LimitedTarget::new(u64::MAX);
            target.target.meter.limit.as_mut().unwrap().start = None;
            let machine_time = |time| Some(Duration::from_millis(time));
            target.react(|sample| Sample { machine_time: machine_time(0), ..sample });
            target.calls = [900_000, 0];
            target.seconds = 15;
            target.react(|sample| Sample { machine_time: machine_time(machine_ms), missing, passed, ..sample })
        };
        // Tracing takes 3.6 s.
        for ended in [[1, 0], [0, 1]] {
            assert_eq!(after(10_000, ended), Reaction::Raise(Bytes(128)));
            assert_eq!(after(60_000, ended), Reaction::None);
        }
    }
}
