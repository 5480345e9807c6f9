//! The table of values of the machine.

/// A value of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum MachineValue {
    /// Processor time in user mode, in nanoseconds.
    UserTime,
    /// Processor time in the kernel, including interrupts, in nanoseconds.
    SystemTime,
    /// Idle processor time, in nanoseconds.
    IdleTime,
    /// Idle processor time while a task waits for I/O, in nanoseconds.
    WaitTime,
    /// Processor time that the hypervisor gave to other virtual machines, in nanoseconds.
    StealTime,
    /// Bytes read from block devices.
    DiskRead,
    /// Bytes written to block devices.
    DiskWrite,
    /// Time with at least one task waiting for a processor, in nanoseconds (PSI, `some`).
    CpuPressure,
    /// Time with at least one task waiting for memory, in nanoseconds (PSI, `some`).
    MemoryPressure,
    /// Time with at least one task waiting for I/O, in nanoseconds (PSI, `some`).
    IoPressure,
    /// Memory that is available without swapping, in bytes, at the end of the interval.
    MemoryAvailable,
    /// Memory of the machine, in bytes.
    MemoryTotal,
    /// Free swap space, in bytes, at the end of the interval.
    SwapFree,
}

impl MachineValue {
    /// Number of values.
    pub const COUNT: usize = 13;

    /// All values, ordered like the columns.
    pub const ALL: [Self; Self::COUNT] = [
        Self::UserTime,
        Self::SystemTime,
        Self::IdleTime,
        Self::WaitTime,
        Self::StealTime,
        Self::DiskRead,
        Self::DiskWrite,
        Self::CpuPressure,
        Self::MemoryPressure,
        Self::IoPressure,
        Self::MemoryAvailable,
        Self::MemoryTotal,
        Self::SwapFree,
    ];

    /// Returns the name in CSV, JSON and recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UserTime => "cpu.user_ns",
            Self::SystemTime => "cpu.system_ns",
            Self::IdleTime => "cpu.idle_ns",
            Self::WaitTime => "cpu.iowait_ns",
            Self::StealTime => "cpu.steal_ns",
            Self::DiskRead => "disk.read_bytes",
            Self::DiskWrite => "disk.write_bytes",
            Self::CpuPressure => "pressure.cpu_some_ns",
            Self::MemoryPressure => "pressure.memory_some_ns",
            Self::IoPressure => "pressure.io_some_ns",
            Self::MemoryAvailable => "meminfo.MemAvailable_bytes",
            Self::MemoryTotal => "meminfo.MemTotal_bytes",
            Self::SwapFree => "meminfo.SwapFree_bytes",
        }
    }

    /// Returns true for counters since the boot of the machine. For a counter, an interval has the increase. For any other
    /// value, an interval has the value at its end.
    #[must_use]
    pub const fn is_counter(self) -> bool {
        !matches!(self, Self::MemoryAvailable | Self::MemoryTotal | Self::SwapFree)
    }
}

/// Values of the machine. A value is `None` if the kernel lacks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineUsage([Option<u64>; MachineValue::COUNT]);

impl MachineUsage {
    /// Returns a value.
    #[must_use]
    pub const fn get(&self, value: MachineValue) -> Option<u64> {
        self.0[value as usize]
    }

    /// Sets a value.
    pub const fn set(&mut self, value: MachineValue, number: Option<u64>) {
        self.0[value as usize] = number;
    }

    /// Returns the values of the interval since `earlier`: the increases of counters, and the other values as in
    /// `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut usage = *self;
        for value in MachineValue::ALL.into_iter().filter(|value| value.is_counter()) {
            let change = self.get(value).zip(earlier.get(value)).map(|(now, then)| now.saturating_sub(then));
            usage.set(value, change);
        }
        usage
    }

    /// Returns the values of this interval and the next one together: the sums of counters, and the other values as in
    /// `next`.
    #[must_use]
    pub fn followed_by(&self, next: &Self) -> Self {
        let mut usage = *next;
        for value in MachineValue::ALL.into_iter().filter(|value| value.is_counter()) {
            usage.set(value, self.get(value).zip(next.get(value)).map(|(one, other)| one + other));
        }
        usage
    }

    /// Returns the processor times in `part` as a share of the time of all processors, from 0 to 1; `None` if no time is known.
    #[must_use]
    pub fn processor_share(&self, part: &[MachineValue]) -> Option<f64> {
        let all = [
            MachineValue::UserTime,
            MachineValue::SystemTime,
            MachineValue::IdleTime,
            MachineValue::WaitTime,
            MachineValue::StealTime,
        ];
        let sum = |values: &[MachineValue]| values.iter().filter_map(|value| self.get(*value)).sum::<u64>();
        let total = sum(&all);
        (total > 0).then(|| sum(part) as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_differences() {
        let of = |user, available| {
            let mut usage = MachineUsage::default();
            usage.set(MachineValue::UserTime, user);
            usage.set(MachineValue::MemoryAvailable, available);
            usage
        };
        assert_eq!(of(Some(7), Some(5)).since(&of(Some(3), Some(9))), of(Some(4), Some(5)));
        assert_eq!(of(Some(7), Some(5)).since(&of(None, None)), of(None, Some(5)));
    }
}
