//! Scheduling state of a thread.

/// State of a thread at the end of an interval, as ps(1) shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskState {
    /// Running, or ready to run.
    #[default]
    Running,
    /// Waiting, interruptible by signals.
    Sleeping,
    /// Waiting, usually for I/O, not interruptible.
    DiskSleep,
    /// Stopped by a signal.
    Stopped,
    /// Stopped by a tracer.
    Traced,
    /// The thread has exited.
    Dead,
    /// Parked by the kernel.
    Parked,
    /// Waiting in the kernel, not counted as load.
    Idle,
}

impl TaskState {
    /// Returns the state for the kernel's bits `task_struct.__state | exit_state` (`task_state_index` and
    /// `TASK_REPORT`, include/linux/sched.h).
    #[must_use]
    pub const fn of_bits(bits: u32) -> Self {
        // TASK_IDLE is TASK_UNINTERRUPTIBLE | TASK_NOLOAD.
        if bits & 0x402 == 0x402 {
            return Self::Idle;
        }
        match bits & 0x7f {
            0 => Self::Running,
            bits if bits & 0x40 != 0 => Self::Parked,
            bits if bits & 0x30 != 0 => Self::Dead,
            bits if bits & 0x08 != 0 => Self::Traced,
            bits if bits & 0x04 != 0 => Self::Stopped,
            bits if bits & 0x02 != 0 => Self::DiskSleep,
            _ => Self::Sleeping,
        }
    }

    /// Returns the letter of ps(1).
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Running => 'R',
            Self::Sleeping => 'S',
            Self::DiskSleep => 'D',
            Self::Stopped => 'T',
            Self::Traced => 't',
            Self::Dead => 'X',
            Self::Parked => 'P',
            Self::Idle => 'I',
        }
    }

    /// Returns the state for a letter of ps(1).
    #[must_use]
    pub const fn of_letter(letter: char) -> Option<Self> {
        Some(match letter {
            'R' => Self::Running,
            'S' => Self::Sleeping,
            'D' => Self::DiskSleep,
            'T' => Self::Stopped,
            't' => Self::Traced,
            'X' => Self::Dead,
            'P' => Self::Parked,
            'I' => Self::Idle,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_kernel() {
        let letters = [0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x402, 0x1001].map(|bits| TaskState::of_bits(bits).letter());
        assert_eq!(letters, ['R', 'S', 'D', 'T', 't', 'X', 'X', 'P', 'I', 'S']);
        for letter in letters {
            assert_eq!(TaskState::of_letter(letter).map(TaskState::letter), Some(letter));
        }
    }
}
