//! Dispatch to the decoder of an architecture.

use super::instruction::{Effects, Instruction};
use super::{aarch64, x86_64};
use crate::elf::Machine;

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
