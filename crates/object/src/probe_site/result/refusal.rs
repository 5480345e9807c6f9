//! Reasons for which a function has no result sites.

/// Reason for which a function has no result sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The function is not for x86-64.
    #[error("only functions of x86-64 are examined")]
    Architecture,
    /// The file has no code there.
    #[error("the code cannot be read")]
    Unreadable,
    /// The function has too many instructions, or its analysis takes too many steps.
    #[error("the function is too long to analyse")]
    TooLong,
    /// Bytes are no instruction.
    #[error("the bytes at {0:#x} are no instruction")]
    Undecodable(u64),
    /// The function may end with a jump to another one.
    #[error("the jump at {0:#x} leads to another function")]
    TailCall(u64),
    /// The allocator is not glibc. A function of another one could call a probed function on a way that the analysis does not see.
    #[error("only functions of glibc have result sites so far")]
    OtherAllocator,
    /// The function calls another one that is probed, which must not count.
    #[error("the call at {0:#x} is that of a function that is probed too")]
    CallsHooked(u64),
    /// A jump has an unknown target.
    #[error("the target of the jump at {0:#x} is not known")]
    IndirectJump(u64),
    /// The function makes a system call that may not return.
    #[error("there is a system call at {0:#x}")]
    SystemCall(u64),
    /// The stack pointer is not known at an instruction.
    #[error("the stack pointer at {0:#x} is not known")]
    Stack(u64),
    /// Other code jumps into the function.
    #[error("other code, at {0:#x}, jumps into the function")]
    JumpedInto(u64),
    /// A path returns a block that no emulated instruction has in a register.
    #[error("a path to the return at {0:#x} has no emulated instruction with the block in a register")]
    Uncounted(u64),
    /// A register of the caller is not in the frame.
    #[error("the caller's registers are not in the frame at {0:#x}")]
    Unsaved(u64),
    /// The frame is too large for the description of a site.
    #[error("the frame at {0:#x} is too large")]
    LargeFrame(u64),
    /// There is too much code to search for jumps into the function.
    #[error("the object has too much code to search for jumps into the function")]
    TooMuchCode,
    /// An exception may end a call that is pending.
    #[error("an exception may end the call after {0:#x}")]
    Throws(u64),
    /// A path may pass the only possible site twice.
    #[error("a loop contains the block")]
    Loop,
    /// The size is not known where the block is.
    #[error("no instruction has the block and the size in registers")]
    NoSize,
}
