//! Probe site: the instruction that a probe is placed on.

use std::fmt;

use super::reason::Reason;
use crate::model::FileOffset;

/// What a hit of a probe costs in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// One trap: the kernel carries out the instruction itself.
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

/// Where the probe of a function goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Bytes from the function's entry to the instruction.
    pub offset: u64,
    /// Where the instruction lies in the file.
    pub file_offset: FileOffset,
    /// The instruction, in the assembler's language; addresses are those by which the object's own symbols count.
    pub instruction: String,
    /// What a hit costs.
    pub cost: Cost,
    /// Why this instruction and no other.
    pub reason: Reason,
}

impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "+{}  {}  {}", self.offset, self.instruction, self.cost)
    }
}
