//! Values of the machine, as samples.

use std::borrow::Cow;

use crate::model::{MachineUsage, MachineValue};
use crate::recording::interval::Interval;
use crate::recording::samples::{Fact, FactValue, MACHINE_START, Sample, Subject};

/// Values of the machine: the kernel's totals of counters, and the last values of others.
#[derive(Debug)]
pub(super) struct MachineTotals {
    totals: MachineUsage,
    /// The values that were recorded last, with the counters at the start, which are facts.
    recorded: MachineUsage,
    is_started: bool,
}

impl MachineTotals {
    /// Returns the values at the start.
    pub(super) fn new(start: MachineUsage) -> Self {
        let mut recorded = start;
        for value in MachineValue::ALL.into_iter().filter(|value| !value.is_counter()) {
            recorded.set(value, None);
        }
        Self { totals: start, recorded, is_started: false }
    }

    /// Adds the usage of an interval, and records the values that have changed.
    pub(super) fn record(&mut self, usage: &MachineUsage, interval: &mut Interval) {
        if !self.is_started {
            self.is_started = true;
            interval.facts.extend(self.start_facts());
        }
        for value in MachineValue::ALL {
            let Some(number) = usage.get(value) else { continue };
            let earlier = if value.is_counter() { self.totals.get(value).unwrap_or(0) } else { 0 };
            let total = Some(earlier.saturating_add(number));
            self.totals.set(value, total);
            if total != self.recorded.get(value) {
                self.recorded.set(value, total);
                interval.samples.extend(total.map(|value_now| Sample {
                    subject: Subject::Machine,
                    counter: Cow::Borrowed(value.name()),
                    value: value_now,
                }));
            }
        }
    }

    fn start_facts(&self) -> impl Iterator<Item = Fact> + '_ {
        let counters = MachineValue::ALL.into_iter().filter(|value| value.is_counter());
        counters.filter_map(|value| {
            Some(Fact {
                topic: Cow::Borrowed(MACHINE_START),
                item: Cow::Borrowed(value.name()),
                value: FactValue::Number(self.totals.get(value)?),
            })
        })
    }
}
