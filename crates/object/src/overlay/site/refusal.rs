//! Reasons that a function, or an allocator as a whole, is not patched.

/// Reason that a function has no site. Addresses are virtual addresses, as in the object's symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteRefusal {
    /// The object is not for x86-64.
    #[error("only code of x86-64 is patched")]
    Architecture,
    /// The file cannot be read, or the symbol is not in its code.
    #[error("its code cannot be read")]
    Unreadable,
    /// No table lists the function.
    #[error("the end of its code is not known")]
    NoFunctionEnd,
    /// The bytes at this address are no instruction.
    #[error("the bytes at {0:#x} are no instruction")]
    Undecodable(u64),
    /// No instruction has the length of a jump.
    #[error("none of its first instructions is long enough for a jump")]
    NoInstruction,
    /// A jump would replace more than one instruction. A stopped thread could be between two of them.
    #[error("a jump would replace several instructions")]
    SeveralInstructions,
    /// Only the first instruction is long enough. Other tools place their probes there, and write its first byte back later.
    #[error("only its first instruction is long enough, which is left to the probes of other tools")]
    FirstInstruction,
    /// The code after this address uses flags from before it.
    #[error("the flags are in use at {0:#x}")]
    FlagsLive(u64),
    /// The stub needs more registers than are free at this address.
    #[error("too few registers are free at {0:#x}")]
    NoScratch(u64),
    /// An argument is in no register at this address.
    #[error("an argument is in no register at {0:#x}")]
    ArgumentLost(u64),
    /// The code before this address changes more than registers and its own frame, or the frame is not known.
    #[error("the state of the function at {0:#x} is not known")]
    FrameUnknown(u64),
    /// The frame at this address is too large.
    #[error("the frame at {0:#x} is too large")]
    LargeFrame(u64),
    /// The branch at this address leads around the site.
    #[error("the branch at {0:#x} leads around the instruction")]
    Bypass(u64),
    /// Code at this address branches to the site, or to the code between the entry and the site.
    #[error("the code at {0:#x} may branch to the instruction, or to the code before it")]
    BranchInto(u64),
    /// The jump at this address may use a jump table.
    #[error("the target of the jump at {0:#x} is not known")]
    IndirectJump(u64),
    /// A symbol, a function or a pointer has this address, which lies between the entry and the end of the site.
    #[error("a symbol or a pointer leads to {0:#x}")]
    JumpTarget(u64),
    /// An exception may enter the function at this address, which lies between the entry and the end of the site.
    #[error("an exception may enter the function at {0:#x}")]
    LandingPad(u64),
    /// The instruction at this address crosses a page. A thread could fetch half of the jump.
    #[error("the instruction at {0:#x} crosses a page")]
    CrossesPage(u64),
    /// An exact trace probes the instruction at this address.
    #[error("an exact trace probes the instruction at {0:#x}")]
    ExactProbe(u64),
    /// The function may throw an exception.
    #[error("it may throw an exception")]
    Throws,
    /// The object or the function has too much code.
    #[error("there is too much code to search for jumps")]
    TooMuchCode,
    /// The function resizes a block in place.
    #[error("it resizes blocks in place")]
    Resizes,
    /// The instruction at this address leads to another function that counts. The blocks of the other function would count twice.
    #[error("the code at {0:#x} calls another function that is patched")]
    CallsAnother(u64),
}

/// Reason that an allocator is not patched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocatorRefusal {
    /// The allocator has no row in the table of allocators.
    #[error("{0} is no allocator that can be patched")]
    Unknown(String),
    /// A function that is needed has no site.
    #[error("{0} cannot be patched: {1}")]
    LacksSite(&'static str, SiteRefusal),
    /// The process uses C++ operators of the allocator, which may throw exceptions.
    #[error("its C++ operators may throw exceptions")]
    Operators,
    /// The allocator is known, and has no sites that are proved.
    #[error("{0} cannot be patched")]
    Unsupported(&'static str),
    /// The C library has no unused words in the header of a thread.
    #[error("musl has no memory for the countdown of a thread")]
    Thread,
}
