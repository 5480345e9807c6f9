//! Properties of an instruction, independent of the architecture.

use super::site::Cost;

/// Control flow of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Continues with the next instruction.
    Next,
    /// Conditional branch to this address.
    Branch(u64),
    /// Unconditional jump to this address.
    Jump(u64),
    /// Call. The target is `None` for an indirect call.
    Call(Option<u64>),
    /// Indirect jump.
    Indirect,
    /// Return to the caller.
    Return,
    /// Trap: the program does not continue.
    Trap,
    /// System call or interrupt.
    Away,
}

impl Flow {
    /// Returns the target address of a direct branch, jump or call.
    pub(super) fn target(self) -> Option<u64> {
        match self {
            Self::Branch(target) | Self::Jump(target) => Some(target),
            Self::Call(target) => target,
            Self::Next | Self::Indirect | Self::Return | Self::Trap | Self::Away => None,
        }
    }
}

/// Decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Length in bytes.
    pub(super) length: usize,
    pub(crate) flow: Flow,
    pub(super) cost: Cost,
}

/// Set of argument registers of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments(u8);

impl Arguments {
    pub(super) const NONE: Self = Self(0);

    /// All arguments that are passed in registers.
    pub(super) const ALL: Self = Self(u8::MAX);

    /// Returns the set of the arguments with these numbers. The first argument has number 0; arguments after number 7
    /// are never in registers.
    pub(super) fn from_numbers(numbers: &[u8]) -> Self {
        numbers.iter().fold(Self::default(), |set, &number| set.with(u32::from(number)))
    }

    pub(super) fn with(self, number: u32) -> Self {
        Self(self.0 | 1u8.checked_shl(number).unwrap_or(0))
    }

    pub(super) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Effect of an instruction on the stack pointer and the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    /// Both are unchanged.
    Kept,
    /// The stack pointer is decreased; the return address is unchanged.
    Lowered,
    /// The effect is another or unknown one.
    Lost,
}

/// Possible effects of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effects {
    /// Arguments with registers that the instruction may write, in part or completely.
    pub(super) writes: Arguments,
    pub(super) stack: Stack,
}

impl Effects {
    /// Effects of an unknown instruction.
    pub(super) const UNKNOWN: Self = Self { writes: Arguments::ALL, stack: Stack::Lost };
}
