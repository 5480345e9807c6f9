//! What the rules need to know of an instruction, whatever the machine.

use super::site::Cost;

/// Where an instruction leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next one.
    Next,
    /// To this address or to the next one.
    Branch(u64),
    /// To this address.
    Jump(u64),
    /// Into a function, at this address where it is known.
    Call(Option<u64>),
    /// To an address that is only known when it runs.
    Indirect,
    /// Back to the caller.
    Return,
    /// Nowhere: the process ends here.
    Trap,
    /// Out of the function otherwise: a system call, an interrupt.
    Away,
}

impl Flow {
    /// The address that the instruction names.
    pub(super) fn target(self) -> Option<u64> {
        match self {
            Self::Branch(target) | Self::Jump(target) => Some(target),
            Self::Call(target) => target,
            Self::Next | Self::Indirect | Self::Return | Self::Trap | Self::Away => None,
        }
    }
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Its bytes.
    pub(super) length: usize,
    /// Where it leads.
    pub(super) flow: Flow,
    /// What a probe on it costs.
    pub(super) cost: Cost,
}

/// A set of a function's arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments(u8);

impl Arguments {
    /// None.
    pub(super) const NONE: Self = Self(0);

    /// All that are passed in registers.
    pub(super) const ALL: Self = Self(u8::MAX);

    /// These ones, counted from 0; beyond 7 there are none in registers.
    pub(super) fn of(numbers: &[u8]) -> Self {
        numbers.iter().fold(Self::default(), |set, &number| set.with(u32::from(number)))
    }

    /// And this one.
    pub(super) fn with(self, number: u32) -> Self {
        Self(self.0 | 1u8.checked_shl(number).unwrap_or(0))
    }

    /// Whether any is in both.
    pub(super) fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// What becomes of the stack pointer and the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    /// Nothing.
    Kept,
    /// The stack pointer is lower than before, and the return address is where it was.
    Lowered,
    /// Something else, or it is not known.
    Lost,
}

/// What an instruction may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effects {
    /// The arguments whose registers it may write, in part or whole.
    pub(super) writes: Arguments,
    /// The stack.
    pub(super) stack: Stack,
}

impl Effects {
    /// Of an instruction of which nothing is known.
    pub(super) const UNKNOWN: Self = Self { writes: Arguments::ALL, stack: Stack::Lost };
}
