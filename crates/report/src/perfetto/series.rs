//! Counters of threads, processes and the machine.

use memtrace_model::{MachineValue, MemoryCounter, ProcessValue, ThreadColumn};

use super::messages::Unit;

/// A value over time, with a counter track.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Series {
    /// A column of threads or processes.
    Column(ThreadColumn),
    Process(ProcessValue),
    Machine(MachineValue),
}

impl Series {
    /// Columns that have a counter track.
    pub(super) const COLUMNS: [ThreadColumn; 10] = [
        ThreadColumn::Net,
        ThreadColumn::Alloc,
        ThreadColumn::Free,
        ThreadColumn::Blocks,
        ThreadColumn::Cpu,
        ThreadColumn::Delay,
        ThreadColumn::Switches,
        ThreadColumn::Read,
        ThreadColumn::Write,
        ThreadColumn::Faults,
    ];

    /// Allocated minus freed bytes since the start of the monitor.
    pub(super) const NET: Self = Self::Column(ThreadColumn::Net);

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Column(column) => match column {
                ThreadColumn::Net => "net bytes",
                ThreadColumn::Alloc => "allocated per second",
                ThreadColumn::Free => "freed per second",
                ThreadColumn::Blocks => "blocks per second",
                ThreadColumn::Cpu => "processor time",
                ThreadColumn::Delay => "waiting for a processor",
                ThreadColumn::Switches => "context switches per second",
                ThreadColumn::Read => "read per second",
                ThreadColumn::Write => "written per second",
                ThreadColumn::Faults => "page faults per second",
                ThreadColumn::Name | ThreadColumn::Tid => "",
            },
            Self::Process(value) => match value {
                ProcessValue::RssAnon => MemoryCounter::RssAnonymous.title(),
                ProcessValue::RssFile => MemoryCounter::RssFile.title(),
                ProcessValue::RssShmem => MemoryCounter::RssShared.title(),
                ProcessValue::Swap => MemoryCounter::Swap.title(),
                ProcessValue::Descriptors => "open file descriptors",
                ProcessValue::Threads => "threads",
            },
            Self::Machine(value) => match value {
                MachineValue::UserTime => "processor time, user",
                MachineValue::SystemTime => "processor time, kernel",
                MachineValue::IdleTime => "processor time, idle",
                MachineValue::WaitTime => "processor time, waiting for I/O",
                MachineValue::StealTime => "processor time, taken by the hypervisor",
                MachineValue::DiskRead => "read per second",
                MachineValue::DiskWrite => "written per second",
                MachineValue::CpuPressure => "pressure, processors",
                MachineValue::MemoryPressure => "pressure, memory",
                MachineValue::IoPressure => "pressure, I/O",
                MachineValue::MemoryAvailable => "available memory",
                MachineValue::MemoryTotal => "memory",
                MachineValue::SwapFree => "free swap",
            },
        }
    }

    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::Column(ThreadColumn::Cpu | ThreadColumn::Delay) => Unit::Percent,
            Self::Column(ThreadColumn::Blocks | ThreadColumn::Switches | ThreadColumn::Faults)
            | Self::Process(ProcessValue::Descriptors | ProcessValue::Threads) => Unit::Count,
            Self::Machine(
                MachineValue::DiskRead
                | MachineValue::DiskWrite
                | MachineValue::MemoryAvailable
                | MachineValue::MemoryTotal
                | MachineValue::SwapFree,
            )
            | Self::Column(_)
            | Self::Process(_) => Unit::Bytes,
            Self::Machine(_) => Unit::Percent,
        }
    }

    /// Returns true if a value is an average over an interval, and false if it is the value at the end of the
    /// interval.
    pub(super) const fn is_rate(self) -> bool {
        match self {
            Self::Column(column) => !matches!(column, ThreadColumn::Net),
            Self::Process(_) => false,
            Self::Machine(value) => value.is_counter(),
        }
    }

    /// Converts the value of a column. Shares become percent, and other values are not changed.
    pub(super) fn percent_of_share(self, value: f64) -> f64 {
        if matches!(self.unit(), Unit::Percent) { value * 100.0 } else { value }
    }

    /// Converts a value of the machine for an interval of `seconds`. A counter of time becomes percent, another
    /// counter becomes a rate per second, and a value at the end of the interval is not changed.
    pub(super) fn scaled(self, number: u64, seconds: f64) -> f64 {
        let number = number as f64;
        match (self.is_rate(), self.unit()) {
            (true, Unit::Percent) => number / seconds / 1e9 * 100.0,
            (true, _) => number / seconds,
            (false, _) => number,
        }
    }
}
