//! Sort columns of a table of threads.

use std::cmp::Ordering;

use super::counter::UsageCounter;
use super::interval::ThreadInterval;
use super::usage::ThreadUsage;
use crate::Comm;

/// Number of nanoseconds in a second.
const SECOND: f64 = 1e9;

/// Sort column of a table of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ThreadColumn {
    /// Allocated minus freed bytes.
    #[default]
    Net,
    /// Allocated bytes.
    Alloc,
    /// Freed bytes.
    Free,
    /// Allocated blocks.
    Blocks,
    /// Processor time.
    Cpu,
    /// Time that the thread waited for a processor.
    Delay,
    /// Context switches.
    Switches,
    /// Bytes read from storage.
    Read,
    /// Bytes written to storage.
    Write,
    /// Page faults.
    Faults,
    /// Names of the threads.
    Name,
    /// Thread IDs.
    Tid,
}

impl ThreadColumn {
    /// Every column, ordered as in the help.
    pub const ALL: &[Self] = &[
        Self::Net,
        Self::Alloc,
        Self::Free,
        Self::Blocks,
        Self::Cpu,
        Self::Delay,
        Self::Switches,
        Self::Read,
        Self::Write,
        Self::Faults,
        Self::Name,
        Self::Tid,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Alloc => "alloc",
            Self::Free => "free",
            Self::Blocks => "blocks",
            Self::Cpu => "cpu",
            Self::Delay => "delay",
            Self::Switches => "switches",
            Self::Read => "read",
            Self::Write => "write",
            Self::Faults => "faults",
            Self::Name => "name",
            Self::Tid => "tid",
        }
    }

    /// Returns the counters that the column adds up. [`Self::Net`] shows the first counter minus the second.
    #[must_use]
    pub const fn counters(self) -> &'static [UsageCounter] {
        match self {
            Self::Net => &[UsageCounter::AllocBytes, UsageCounter::FreeBytes],
            Self::Alloc => &[UsageCounter::AllocBytes],
            Self::Free => &[UsageCounter::FreeBytes],
            Self::Blocks => &[UsageCounter::AllocCount],
            Self::Cpu => &[UsageCounter::UserTime, UsageCounter::SystemTime],
            Self::Delay => &[UsageCounter::RunDelay],
            Self::Switches => &[UsageCounter::VoluntarySwitches, UsageCounter::InvoluntarySwitches],
            Self::Read => &[UsageCounter::ReadBytes],
            Self::Write => &[UsageCounter::WriteBytes],
            Self::Faults => &[UsageCounter::MinorFaults, UsageCounter::MajorFaults],
            Self::Name | Self::Tid => &[],
        }
    }

    /// Returns the number in the column for the usage in an interval of `seconds`: bytes for [`Self::Net`], the share
    /// of one processor for times, 0 for names and thread IDs, and a number per second for all other columns.
    #[must_use]
    pub fn value(self, usage: &ThreadUsage, seconds: f64) -> f64 {
        let sum = self.counters().iter().map(|counter| usage.get(*counter)).fold(0, u64::saturating_add) as f64;
        match self {
            Self::Net => usage.net() as f64,
            Self::Cpu | Self::Delay => sum / SECOND / seconds,
            Self::Alloc
            | Self::Free
            | Self::Blocks
            | Self::Switches
            | Self::Read
            | Self::Write
            | Self::Faults
            | Self::Name
            | Self::Tid => sum / seconds,
        }
    }

    /// Returns the order of two threads of an interval in the table: by name, by thread ID, or by decreasing value.
    #[must_use]
    pub fn order(self, one: &ThreadInterval, other: &ThreadInterval) -> Ordering {
        let id = |thread: &ThreadInterval| (thread.thread.tid, thread.thread);
        let by_column = self.compare((&one.comm, &one.usage), (&other.comm, &other.usage));
        by_column.then_with(|| id(one).cmp(&id(other)))
    }

    /// Returns the order of two threads or processes of an interval, by name or by decreasing value. For [`Self::Tid`],
    /// it returns [`Ordering::Equal`].
    #[must_use]
    pub fn compare(self, one: (&Comm, &ThreadUsage), other: (&Comm, &ThreadUsage)) -> Ordering {
        match self {
            Self::Name => one.0.cmp(other.0),
            // Both usages are from the same interval, so its length does not change the order.
            _ => self.value(other.1, 1.0).total_cmp(&self.value(one.1, 1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Comm, Pid, TaskState, ThreadIdentity, Tid};

    fn thread(tid: u32, name: &str, values: &[(UsageCounter, u64)]) -> ThreadInterval {
        ThreadInterval {
            thread: ThreadIdentity { pid: Pid(1), tid: Tid(tid), start_ns: 0 },
            comm: Comm::from(name),
            state: TaskState::Running,
            usage: ThreadUsage::of(values),
        }
    }

    #[test]
    fn values_are_rates_shares_or_bytes() {
        // Powers of two, so that no two columns have the same sum.
        let values: Vec<_> =
            UsageCounter::ALL.iter().map(|counter| (*counter, 1_000_000_000 << (*counter as usize))).collect();
        let usage = ThreadUsage::of(&values);
        let shown = ThreadColumn::ALL.iter().map(|column| column.value(&usage, 4.0));
        let gigas = [0.25, 1.0, 0.5, 48.0 / 4e9, 64.0 / 4e9, 384.0 / 4.0, 512.0 / 4.0, 256.0, 6144.0 / 4.0, 0.0, 0.0];
        assert_eq!(shown.collect::<Vec<_>>(), [&[-3e9], gigas.map(|value| value * 1e9).as_slice()].concat());
    }

    #[test]
    fn threads_are_sorted_by_value_name_or_id() {
        use UsageCounter::{AllocBytes, FreeBytes};
        let mut threads = [
            thread(3, "b", &[(AllocBytes, 5), (FreeBytes, 9)]),
            thread(2, "c", &[(AllocBytes, 5)]),
            thread(1, "a", &[(AllocBytes, 9), (FreeBytes, 9)]),
        ];
        let mut sorted = |column: ThreadColumn| {
            threads.sort_by(|one, other| column.order(one, other));
            threads.each_ref().map(|thread| thread.thread.tid.0)
        };
        assert_eq!(sorted(ThreadColumn::Net), [2, 1, 3]);
        assert_eq!(sorted(ThreadColumn::Alloc), [1, 2, 3]);
        assert_eq!(sorted(ThreadColumn::Name), [1, 3, 2]);
        assert_eq!(sorted(ThreadColumn::Tid), [1, 2, 3]);
        assert_eq!(sorted(ThreadColumn::Free), [1, 3, 2]);
    }
}
