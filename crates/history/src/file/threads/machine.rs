//! Values of the machine, as samples.

use std::borrow::Cow;

use memtrace_model::{MachineUsage, MachineValue};

use crate::interval::{Fact, FactValue, Interval, MACHINE_START, Sample, Subject};

/// Last recorded values of the machine. Counters are the kernel's totals.
#[derive(Debug)]
pub(super) struct MachineTotals {
    /// At first, the counters at the start of the monitor, which are recorded as facts.
    recorded: MachineUsage,
    is_started: bool,
}

impl MachineTotals {
    /// Takes over the counters at the start of the monitor. Other values count as not recorded.
    pub(super) fn new(start: MachineUsage) -> Self {
        let mut recorded = start;
        for value in MachineValue::ALL.into_iter().filter(|value| !value.is_counter()) {
            recorded.set(value, None);
        }
        Self { recorded, is_started: false }
    }

    /// Adds the usage of an interval to the totals, and records the values that have changed.
    pub(super) fn record(&mut self, usage: &MachineUsage, interval: &mut Interval) {
        if !self.is_started {
            self.is_started = true;
            interval.facts.extend(self.start_facts());
        }
        for value in MachineValue::ALL {
            let Some(number) = usage.get(value) else { continue };
            let earlier = if value.is_counter() { self.recorded.get(value).unwrap_or(0) } else { 0 };
            let total = earlier.saturating_add(number);
            if Some(total) != self.recorded.get(value) {
                self.recorded.set(value, Some(total));
                interval.samples.push(Sample {
                    subject: Subject::Machine,
                    counter: Cow::Borrowed(value.name()),
                    value: total,
                });
            }
        }
    }

    fn start_facts(&self) -> impl Iterator<Item = Fact> + '_ {
        // Only counters have values before the first interval.
        MachineValue::ALL.into_iter().filter_map(|value| {
            Some(Fact {
                topic: Cow::Borrowed(MACHINE_START),
                item: Cow::Borrowed(value.name()),
                value: FactValue::Number(self.recorded.get(value)?),
            })
        })
    }
}
