//! Which instruction of a function the probe goes to.
//!
//! The kernel puts a breakpoint there. Some instructions it then carries out itself, and a hit costs one trap; any other
//! is copied out of line and single-stepped, which costs a second trap, and many times as much where a hypervisor takes
//! part in it. So the probe goes to the first instruction behind the entry that the kernel emulates, provided that it
//! can be proven to see what a probe at the entry would see: every call, once, with the arguments and the stack pointer
//! as they were. What cannot be proven is probed at its entry.
//!
//! All of this is pure: it is told bytes and addresses, and reads no file.

mod aarch64;
mod elsewhere;
mod instruction;
mod paths;
mod reason;
mod rules;
mod x86_64;

use std::fmt;

use crate::model::FileOffset;

pub(crate) use elsewhere::Window;
pub(crate) use paths::{Lead, Surroundings, passes_on, returns};
pub use reason::Reason;
pub(crate) use rules::{Choice, Code, Needs, choose};

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
