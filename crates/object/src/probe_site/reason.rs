//! Reasons for the choice of a probe site.

use std::fmt;

/// Reason for the choice of a probe site. Offsets are bytes from the function's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The entry is chosen: its instruction is emulated.
    EntryEmulated,
    /// An instruction after the entry is chosen: it is provably equivalent to the entry.
    Proven,
    /// Same as [`Reason::Proven`], but the stack pointer is lower than at the entry. This suffices for a function
    /// without a return probe.
    ProvenLower,
    /// The first instruction after the entry that the kernel accepts is chosen, because the kernel refuses the entry.
    EntryRefused,
    /// Entry: the function's size is unknown.
    SizeUnknown,
    /// Entry: the function is too long to analyse.
    TooLong,
    /// Entry: the object has too much code to search for jumps.
    TooMuchCode,
    /// Entry: the file could not be read.
    Unreadable,
    /// Entry: the bytes at this offset are not a valid instruction.
    Undecodable(u64),
    /// Entry: the instruction at this offset may change an argument, and none before it is emulated.
    ChangesArgument(u64),
    /// Entry: the instruction at this offset may change the stack pointer or the return address, and none before it is
    /// emulated.
    MovesStack(u64),
    /// Entry: not every call executes the instructions after this offset, and none before it is emulated.
    Leaves(u64),
    /// Entry: there is a call at this offset, and no instruction before it is emulated.
    Calls(u64),
    /// Entry: no instruction near it is emulated.
    NoneNear,
    /// Entry: the jump at this offset is indirect.
    IndirectJump(u64),
    /// Entry: the function's own branch at this offset leads to an address after the entry, up to the candidate.
    JumpsBack(u64),
    /// Entry: code elsewhere in the object, at this address, may jump to an address after the entry, up to the
    /// candidate.
    JumpedInto(u64),
    /// Entry: another symbol starts at this offset.
    OtherSymbol(u64),
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EntryEmulated => out.write_str("the first instruction is emulated"),
            Self::Proven => out.write_str("every call executes it as it does the entry"),
            Self::ProvenLower => {
                out.write_str("every call executes it as it does the entry, with a lower stack pointer")
            }
            Self::EntryRefused => out.write_str("the kernel refuses a probe at the first instruction"),
            Self::SizeUnknown => out.write_str("the function's size is unknown"),
            Self::TooLong => out.write_str("the function is too long"),
            Self::TooMuchCode => out.write_str("the object has too much code"),
            Self::Unreadable => out.write_str("the file could not be read"),
            Self::Undecodable(at) => write!(out, "invalid instruction at +{at}"),
            Self::ChangesArgument(at) => write!(out, "at +{at} an argument changes"),
            Self::MovesStack(at) => write!(out, "at +{at} the stack pointer moves"),
            Self::Leaves(at) => write!(out, "not every call continues after +{at}"),
            Self::Calls(at) => write!(out, "call at +{at}"),
            Self::NoneNear => out.write_str("no instruction near the entry is emulated"),
            Self::IndirectJump(at) => write!(out, "the jump at +{at} is indirect"),
            Self::JumpsBack(at) => write!(out, "the branch at +{at} leads back to after the entry"),
            Self::JumpedInto(from) => write!(out, "code at {from:#x} may jump to after the entry"),
            Self::OtherSymbol(at) => write!(out, "another symbol starts at +{at}"),
        }
    }
}
