//! Why a probe goes where it goes.

use std::fmt;

/// Why a probe goes where it goes. Offsets are bytes from the function's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// At the entry, whose instruction the kernel emulates.
    EntryEmulated,
    /// Behind the entry: it was proven to see what a probe at the entry would.
    Proven,
    /// As [`Reason::Proven`], but with a lower stack pointer than at the entry, which is enough where no return is
    /// followed.
    ProvenLower,
    /// At the entry: how long the function is is not known.
    SizeUnknown,
    /// At the entry: the function is too long to be looked at.
    TooLong,
    /// At the entry: the object has too much code to be searched for jumps.
    TooMuchCode,
    /// At the entry: the file could not be read.
    Unreadable,
    /// At the entry: what lies at this offset is no known instruction.
    Undecodable(u64),
    /// At the entry: the instruction at this offset may change an argument, and none before it is emulated.
    ChangesArgument(u64),
    /// At the entry: the instruction at this offset may move the stack pointer or the return address, and none before it
    /// is emulated.
    MovesStack(u64),
    /// At the entry: not every call passes the instruction at this offset, and none before it is emulated.
    Leaves(u64),
    /// At the entry: a call lies at this offset, and none before it is emulated.
    Calls(u64),
    /// At the entry: no instruction near it is emulated.
    NoneNear,
    /// At the entry: where the jump at this offset goes is only known when it runs.
    IndirectJump(u64),
    /// At the entry: the function's own branch at this offset lands between the entry and the better instruction.
    JumpsBack(u64),
    /// At the entry: other code, at this address as the object's symbols count, may jump behind the entry.
    JumpedInto(u64),
    /// At the entry: another symbol begins at this offset.
    OtherSymbol(u64),
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EntryEmulated => out.write_str("the first instruction is emulated"),
            Self::Proven => out.write_str("every call passes it as it passes the entry"),
            Self::ProvenLower => {
                out.write_str("every call passes it as it passes the entry, but for a lower stack pointer")
            }
            Self::SizeUnknown => out.write_str("the function's size is not known"),
            Self::TooLong => out.write_str("the function is too long"),
            Self::TooMuchCode => out.write_str("the object has too much code"),
            Self::Unreadable => out.write_str("the file could not be read"),
            Self::Undecodable(at) => write!(out, "at +{at} is no known instruction"),
            Self::ChangesArgument(at) => write!(out, "at +{at} an argument changes"),
            Self::MovesStack(at) => write!(out, "at +{at} the stack pointer moves"),
            Self::Leaves(at) => write!(out, "not every call passes +{at}"),
            Self::Calls(at) => write!(out, "at +{at} is a call"),
            Self::NoneNear => out.write_str("no instruction near the entry is emulated"),
            Self::IndirectJump(at) => write!(out, "where the jump at +{at} goes is not known"),
            Self::JumpsBack(at) => write!(out, "the branch at +{at} goes back behind the entry"),
            Self::JumpedInto(from) => write!(out, "code at {from:#x} may jump behind the entry"),
            Self::OtherSymbol(at) => write!(out, "another symbol begins at +{at}"),
        }
    }
}
