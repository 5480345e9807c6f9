//! Registers and vendor extensions of call frame information by architecture.

use gimli::{AArch64, Register, Vendor, X86_64};

use crate::elf::Machine;

pub(super) const fn stack_pointer(machine: Machine) -> Register {
    match machine {
        Machine::X86_64 => X86_64::RSP,
        Machine::Aarch64 => AArch64::SP,
    }
}

pub(super) const fn frame_pointer(machine: Machine) -> Register {
    match machine {
        Machine::X86_64 => X86_64::RBP,
        Machine::Aarch64 => AArch64::X29,
    }
}

/// Returns the vendor whose extensions of the call frame instructions are decoded.
pub(super) const fn vendor(machine: Machine) -> Vendor {
    match machine {
        Machine::X86_64 => Vendor::Default,
        Machine::Aarch64 => Vendor::AArch64,
    }
}
