//! Probe site: the instruction that a probe is placed on.

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
    /// Bytes from the function's entry to the instruction.
    pub offset: u64,
    /// File offset of the instruction.
    pub file_offset: FileOffset,
    /// The instruction in assembler syntax; addresses are those of the object's symbol table.
    pub instruction: String,
    /// Cost of a hit.
    pub cost: Cost,
    /// Reason for the choice.
    pub reason: Reason,
}

impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "+{}  {}  {}", self.offset, self.instruction, self.cost)
    }
}
