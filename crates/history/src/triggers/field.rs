//! Table of the fields that conditions compare.

use memtrace_model::MachineValue::{
    CpuPressure, IoPressure, MemoryAvailable, MemoryPressure, SystemTime as MachineSystemTime,
    UserTime as MachineUserTime,
};
use memtrace_model::ProcessValue::{Descriptors, Swap, Threads};
use memtrace_model::UsageCounter::{
    AllocBytes, FreeBytes, InvoluntarySwitches, MajorFaults, ReadBytes, RunDelay, VoluntarySwitches, WriteBytes,
};
use memtrace_model::{MachineValue, ProcessValue, ThreadUsage, UsageCounter};

use super::observed::Observed;
use super::subject::Subject;
use super::subject::Subject::{Cgroup, Machine, Process, Thread};

/// Unit of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Bytes, which may be negative.
    SignedBytes,
    /// A count.
    Number,
    /// Thousandths of a percent.
    Percent,
}

/// Field that conditions compare.
#[derive(Debug)]
pub struct Field {
    /// Name in the text of a condition.
    pub name: &'static str,
    /// Kinds of subjects that have the field.
    pub subjects: &'static [Subject],
    /// Unit of the values.
    pub unit: Unit,
    /// True if the values of intervals are added up, within a period or since the start of the monitor.
    pub is_sum: bool,
    /// Function that returns the value of a subject in an interval; `None` if it is unknown. The second argument is
    /// the length of the interval in nanoseconds.
    pub(super) read: fn(Observed<'_>, u64) -> Option<i64>,
}

/// Kinds of subjects that have usage counters.
const COUNTED: &[Subject] = &[Process, Thread];

/// All fields. A name may have a row for some subjects and another row for other subjects.
pub(super) const FIELDS: &[Field] = &[
    sum("net", Unit::SignedBytes, |subject, _| Some(subject.heap()?.net())),
    sum("alloc", Unit::Bytes, |subject, _| Some(counter(subject.heap()?, AllocBytes))),
    sum("free", Unit::Bytes, |subject, _| Some(counter(subject.heap()?, FreeBytes))),
    sum("major_faults", Unit::Number, |subject, _| Some(counter(subject.usage()?, MajorFaults))),
    sum("switches", Unit::Number, |subject, _| {
        let usage = subject.usage()?;
        Some(counter(usage, VoluntarySwitches).saturating_add(counter(usage, InvoluntarySwitches)))
    }),
    sum("read", Unit::Bytes, |subject, _| Some(counter(subject.usage()?, ReadBytes))),
    sum("write", Unit::Bytes, |subject, _| Some(counter(subject.usage()?, WriteBytes))),
    percentage("cpu", COUNTED, |subject, interval| share(subject.usage()?.processor_time(), interval)),
    percentage("run_delay", COUNTED, |subject, interval| share(subject.usage()?.get(RunDelay), interval)),
    value("rss", &[Process], Unit::Bytes, |subject, _| subject.process_values()?.rss().map(signed)),
    value("swap", &[Process], Unit::Bytes, |subject, _| of_process(subject, Swap)),
    value("descriptors", &[Process], Unit::Number, |subject, _| of_process(subject, Descriptors)),
    value("threads", &[Process], Unit::Number, |subject, _| of_process(subject, Threads)),
    percentage("pressure", &[Machine], |subject, interval| share(of_machine(subject, MemoryPressure)?, interval)),
    percentage("cpu_pressure", &[Machine], |subject, interval| share(of_machine(subject, CpuPressure)?, interval)),
    percentage("io_pressure", &[Machine], |subject, interval| share(of_machine(subject, IoPressure)?, interval)),
    value("available", &[Machine], Unit::Bytes, |subject, _| of_machine(subject, MemoryAvailable).map(signed)),
    percentage("cpu", &[Machine], |subject, _| {
        let share = subject.machine()?.processor_share(&[MachineUserTime, MachineSystemTime])?;
        Some((share * 100_000.0).round() as i64)
    }),
    value("memory", &[Cgroup], Unit::Bytes, |subject, _| subject.cgroup()?.memory.map(signed)),
    percentage("pressure", &[Cgroup], |subject, interval| share(subject.cgroup()?.pressure?, interval)),
];

/// Function that reads a field.
type Read = fn(Observed<'_>, u64) -> Option<i64>;

/// Returns a row for values that are added up.
const fn sum(name: &'static str, unit: Unit, read: Read) -> Field {
    Field { name, subjects: COUNTED, unit, is_sum: true, read }
}

/// Returns a row for shares of the time of an interval.
const fn percentage(name: &'static str, subjects: &'static [Subject], read: Read) -> Field {
    Field { name, subjects, unit: Unit::Percent, is_sum: false, read }
}

/// Returns a row for values at the end of an interval.
const fn value(name: &'static str, subjects: &'static [Subject], unit: Unit, read: Read) -> Field {
    Field { name, subjects, unit, is_sum: false, read }
}

/// Returns the names of the fields of a kind of subjects.
pub(super) fn names_of(subject: Subject) -> impl Iterator<Item = &'static str> {
    FIELDS.iter().filter(move |field| field.subjects.contains(&subject)).map(|field| field.name)
}

/// Returns a field of a kind of subjects.
pub(super) fn field(subject: Subject, name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name && field.subjects.contains(&subject))
}

/// Returns the kinds of subjects that have a field, the default first.
pub(super) fn subjects_with(name: &str) -> impl Iterator<Item = Subject> {
    Subject::ALL.into_iter().filter(move |subject| field(*subject, name).is_some())
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn counter(usage: &ThreadUsage, counter: UsageCounter) -> i64 {
    signed(usage.get(counter))
}

fn of_process(subject: Observed<'_>, value: ProcessValue) -> Option<i64> {
    subject.process_values()?.get(value).map(signed)
}

fn of_machine(subject: Observed<'_>, value: MachineValue) -> Option<u64> {
    subject.machine()?.get(value)
}

/// Returns a time as a share of an interval, in thousandths of a percent.
fn share(nanoseconds: u64, interval: u64) -> Option<i64> {
    let share = (u128::from(nanoseconds) * 100_000).checked_div(u128::from(interval))?;
    Some(i64::try_from(share).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_has_one_row_for_a_subject() {
        for subject in Subject::ALL {
            let mut names: Vec<_> = names_of(subject).collect();
            assert!(!names.is_empty());
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{subject:?}");
        }
    }

    #[test]
    fn default_subject_is_the_process() {
        let default = |name| subjects_with(name).next();
        assert_eq!(["net", "cpu", "rss"].map(default), [Some(Process); 3]);
        assert_eq!(["pressure", "available"].map(default), [Some(Machine); 2]);
        assert_eq!((default("memory"), default("heap")), (Some(Cgroup), None));
    }

    #[test]
    fn share_is_in_thousandths_of_a_percent() {
        assert_eq!(share(1, 8), Some(12_500));
        assert_eq!(share(30, 10), Some(300_000));
        assert_eq!((share(1, 0), share(u64::MAX, 1)), (None, Some(i64::MAX)));
    }
}
