//! Measurement of the overhead during a trace.
//!
//! An estimate does not suffice: a command cannot be observed before it runs, and a running process
//! can change.

use std::time::{Duration, Instant};

use memtrace_model::{Bytes, CallsBySize};

use super::estimate::estimate;
use super::load::{CallCosts, Load};
use super::warning;

/// Minimum length of a period.
const PERIOD: Duration = Duration::from_secs(1);

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
    pub(in crate::trace) processor_time: Duration,
    /// Number of ended targets with unknown processor time.
    pub(in crate::trace) missing: usize,
}

/// Monitor of the overhead during a trace.
pub(in crate::trace) struct OverheadMeter {
    costs: CallCosts,
    min_size: Bytes,
    /// True if the user has received a warning.
    has_warned: bool,
    /// Sample at the start of the current period.
    start: Option<Sample>,
    /// Load of all measured periods. It includes the time that tracing took.
    total: Load,
}

impl OverheadMeter {
    /// Creates a monitor of a trace. `min_size`: minimum size of a traced allocation.
    pub(in crate::trace) fn new(costs: CallCosts, min_size: Bytes, has_warned: bool) -> Self {
        Self { costs, min_size, has_warned, start: None, total: Load::default() }
    }

    /// Returns true if the current period is long enough to end it by a sample at `now`.
    pub(in crate::trace) fn is_due(&self, now: Instant) -> bool {
        self.start.is_none_or(|start| now.duration_since(start.at) >= PERIOD)
    }

    /// Measures the period from the last sample to `sample`. Returns messages for the user when tracing takes much of
    /// the targets' time for the first time.
    pub(in crate::trace) fn update(&mut self, sample: Sample) -> Vec<String> {
        let Some(load) = self.end_period(sample, LEAST_BUSY) else { return Vec::new() };
        let load = self.without_cost(load);
        match warning::measured_warning(&load, self.costs, self.min_size).filter(|_| !self.has_warned) {
            Some(warning) => {
                self.has_warned = true;
                vec![estimate(&load, self.costs, self.min_size).measured(), warning]
            }
            None => Vec::new(),
        }
    }

    /// Measures the last period. Returns a note for the report if tracing took much of the targets' time.
    pub(in crate::trace) fn finish(mut self, sample: Sample) -> Option<String> {
        self.end_period(sample, Duration::ZERO);
        let load = self.without_cost(self.total);
        (self.total.own >= LEAST_BUSY).then(|| warning::note(&load, self.costs, self.min_size))?
    }

    /// Ends the current period if the targets have used at least `least` of processor time. Returns the load of the
    /// period; `None` if the period continues, or if the processor time is unknown.
    fn end_period(&mut self, sample: Sample, least: Duration) -> Option<Load> {
        let start = *self.start.get_or_insert(sample);
        let busy = sample.processor_time.checked_sub(start.processor_time);
        let Some(busy) = busy.filter(|_| sample.missing == start.missing) else {
            // The time of a child that has just ended is missing until its parent waits for it.
            let may_return = sample.missing == start.missing && sample.at.duration_since(start.at) < 2 * PERIOD;
            self.start = Some(if may_return { start } else { sample });
            return None;
        };
        if busy < least || busy.is_zero() {
            return None;
        }
        self.start = Some(sample);
        let load = Load {
            calls: sample.calls - start.calls,
            filtered: sample.not_recorded.saturating_sub(start.not_recorded),
            during: sample.at.duration_since(start.at),
            own: busy,
        };
        self.total = Load {
            calls: self.total.calls + load.calls,
            filtered: self.total.filtered + load.filtered,
            during: self.total.during + load.during,
            own: self.total.own + load.own,
        };
        Some(load)
    }

    /// Returns the load without the time that tracing took. At least the share [`LEAST_OWN`] of this time remains: if
    /// tracing takes nearly all the time, the difference is within the error of the cost.
    fn without_cost(&self, load: Load) -> Load {
        let cost = load.cost(self.costs, self.min_size);
        let load = load.without(cost);
        Load { own: load.own.max(Duration::from_secs_f64(cost * LEAST_OWN)), ..load }
    }
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
            Self { start: Instant::now(), meter: OverheadMeter::new(COSTS, Bytes(min_size), has_warned) }
        }

        fn sample(&self, seconds: u64, calls: u64, busy_ms: u64) -> Sample {
            Sample {
                at: self.start + Duration::from_secs(seconds),
                calls: [(Bytes(64), calls)].into_iter().collect(),
                not_recorded: 0,
                processor_time: Duration::from_millis(busy_ms),
                missing: 0,
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
            "at 100000 allocations per second, tracing takes at least 40 % of one processor, 80 % of the target's time",
            "warning: this is more than 25 % of the target's time; --max-depth 0 saves about 50 % of it, --min-size 128 \
             about 75 %",
        ];
        assert_eq!(target.update(2, 110_000, 1190), expected);
        assert_eq!(target.update(3, 210_000, 2090), [""; 0]);
        // In all, tracing takes 840 ms of 2040 ms.
        assert!(
            target.finish(3, 210_000, 2090).unwrap().starts_with("tracing took at least 70 % of the target's time; ")
        );
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
        assert!(target.update(2, 20_000, 120)[0].starts_with("at 10000 allocations per second"));
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
        let few = Sample { not_recorded: 100_000, ..target.sample(1, 0, 1000) };
        assert_eq!(target.meter.update(few), [""; 0]);
        // Tracing takes 400 ms of 1 s; in all, 500 ms of 2 s.
        let many = Sample { not_recorded: 500_000, ..target.sample(2, 0, 2000) };
        let warned = target.meter.update(many);
        assert!(
            warned[0].ends_with("67 % of the target's time") && warned[1].contains("faults --sample 64"),
            "{warned:?}"
        );
        assert!(target.meter.finish(many).unwrap().starts_with("tracing took at least 33 % "));
    }

    #[test]
    fn warning_of_the_estimate_is_not_repeated() {
        let mut target = Target::new(0, true);
        target.update(0, 0, 0);
        assert_eq!(target.update(1, 100_000, 500), [""; 0]);
        assert!(target.finish(2, 200_000, 1000).is_some());
    }
}
