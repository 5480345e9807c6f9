//! Probe site: the instruction that gets the probe.

use std::fmt;

use memtrace_model::FileOffset;

use super::reason::Reason;

/// Kernel cost of one probe hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// One trap: the kernel emulates the instruction.
    Emulated,
    /// Two traps: the instruction is single-stepped out of line.
    Stepped,
}

impl fmt::Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Emulated => "emulated",
            Self::Stepped => "stepped",
        })
    }
}

/// Probe site of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Offset of the instruction from the function's entry, in bytes.
    pub offset: u64,
    /// File offset of the instruction.
    pub file_offset: FileOffset,
    /// Disassembled instruction. Addresses are the ones of the object's symbols.
    pub instruction: String,
    /// Kernel cost of a hit.
    pub cost: Cost,
    /// Reason for the choice of this instruction.
    pub reason: Reason,
}

impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "+{}  {}  {}", self.offset, self.instruction, self.cost)
    }
}
