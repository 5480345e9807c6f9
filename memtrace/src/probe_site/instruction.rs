//! What the rules need to know of an instruction, whatever the machine.

use super::{Cost, aarch64, x86_64};
use crate::elf::Machine;

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

impl Machine {
    /// The instruction at the beginning of `code`, which lies at `address`; `None` where there is no known one.
    pub(super) fn decode(self, code: &[u8], address: u64) -> Option<Instruction> {
        match self {
            Self::X86_64 => x86_64::decode(code, address),
            Self::Aarch64 => aarch64::decode(code, address),
        }
    }

    /// What the instruction at the beginning of `code` may change.
    pub(super) fn effects(self, code: &[u8]) -> Effects {
        match self {
            Self::X86_64 => x86_64::effects(code),
            Self::Aarch64 => aarch64::effects(code),
        }
    }

    /// The instruction at the beginning of `code`, which lies at `address`, as assemblers write it.
    pub(super) fn text(self, code: &[u8], address: u64) -> String {
        match self {
            Self::X86_64 => x86_64::text(code, address),
            Self::Aarch64 => aarch64::text(code, address),
        }
    }

    /// Tells `found` the address and the target of everything in `code` that could be a far-reaching direct branch,
    /// wherever instructions may begin.
    pub(super) fn branches(self, code: &[u8], address: u64, found: impl FnMut(u64, u64)) {
        match self {
            Self::X86_64 => x86_64::branches(code, address, found),
            Self::Aarch64 => aarch64::branches(code, address, found),
        }
    }

    /// Where the address lies that the stub at the beginning of `code`, which lies at `address`, jumps to: one by which an
    /// object calls what another may replace.
    pub(crate) fn slot(self, code: &[u8], address: u64) -> Option<u64> {
        match self {
            Self::X86_64 => x86_64::slot(code, address),
            Self::Aarch64 => aarch64::slot(code, address),
        }
    }

    /// Where the address lies to which the indirect jump or call at the beginning of `code`, which lies at `address`,
    /// leads; `None` where it takes it from elsewhere than one place that is known.
    pub(crate) fn pointed_by(self, code: &[u8], address: u64) -> Option<u64> {
        match self {
            Self::X86_64 => x86_64::pointed_by(code, address),
            Self::Aarch64 => None,
        }
    }

    /// Whether the instruction at the beginning of `code` compares this argument with nothing.
    pub(crate) fn tests_for_null(self, code: &[u8], argument: u8) -> bool {
        match self {
            Self::X86_64 => x86_64::tests_for_null(code, argument),
            Self::Aarch64 => false,
        }
    }

    /// Whether the branch at the beginning of `code`, which lies at `address`, is taken where what was compared is null;
    /// `None` where it depends on something else.
    pub(crate) fn taken_if_null(self, code: &[u8], address: u64) -> Option<bool> {
        match self {
            Self::X86_64 => x86_64::taken_if_null(code, address),
            Self::Aarch64 => None,
        }
    }

    /// Whether the instruction at the beginning of `code` does nothing, as what compilers put between functions.
    pub(crate) fn is_padding(self, code: &[u8]) -> bool {
        match self {
            Self::X86_64 => x86_64::is_padding(code),
            Self::Aarch64 => false,
        }
    }

    /// Instructions lie at multiples of so many bytes.
    pub(super) fn alignment(self) -> usize {
        match self {
            Self::X86_64 => 1,
            Self::Aarch64 => 4,
        }
    }

    /// How many bytes of a piece of code must be seen again with the next piece, so that no instruction is cut in two.
    pub(crate) fn overlap(self) -> usize {
        match self {
            Self::X86_64 => 14,
            Self::Aarch64 => 0,
        }
    }
}
