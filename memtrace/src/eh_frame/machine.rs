//! Registers and vendor extensions of call frame information by architecture.

use gimli::{AArch64, Register, Vendor, X86_64};

use crate::elf::Machine;

impl Machine {
    pub(super) const fn stack_pointer(self) -> Register {
        match self {
            Self::X86_64 => X86_64::RSP,
            Self::Aarch64 => AArch64::SP,
        }
    }

    pub(super) const fn frame_pointer(self) -> Register {
        match self {
            Self::X86_64 => X86_64::RBP,
            Self::Aarch64 => AArch64::X29,
        }
    }

    /// The vendor whose call frame instructions are decoded.
    pub(super) const fn vendor(self) -> Vendor {
        match self {
            Self::X86_64 => Vendor::Default,
            Self::Aarch64 => Vendor::AArch64,
        }
    }
}
