//! The machines that call frame information can be for: which of their registers matter.

use gimli::{AArch64, Register, Vendor, X86_64};

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// aarch64, little-endian.
    Aarch64,
}

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

    /// Whose encoding of call frame instructions is meant where vendors differ.
    pub(super) const fn vendor(self) -> Vendor {
        match self {
            Self::X86_64 => Vendor::Default,
            Self::Aarch64 => Vendor::AArch64,
        }
    }
}
