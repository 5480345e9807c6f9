//! Reasons that a function has no result sites.

/// Reason that a function has no result sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The function is not for x86-64.
    #[error("only functions of x86-64 are examined")]
    Architecture,
    /// The code at the address of the function cannot be read.
    #[error("the code cannot be read")]
    Unreadable,
    /// The function has too many instructions, or its analysis takes too many steps.
    #[error("the function is too long to analyse")]
    TooLong,
    /// The bytes at this address are no instruction.
    #[error("the bytes at {0:#x} are no instruction")]
    Undecodable(u64),
    /// The function may end with the jump at this address to another function.
    #[error("the jump at {0:#x} leads to another function")]
    TailCall(u64),
    /// The allocator is not glibc. A function of another allocator could call a probed function in a way that the
    /// analysis does not see.
    #[error("only functions of glibc have result sites so far")]
    OtherAllocator,
    /// The function calls, at this address, another function that is probed too. The inner call must not count.
    #[error("the call at {0:#x} is that of a function that is probed too")]
    CallsHooked(u64),
    /// The jump at this address has an unknown target.
    #[error("the target of the jump at {0:#x} is not known")]
    IndirectJump(u64),
    /// The function enters the kernel at this address, in a way that may not return.
    #[error("there is a system call at {0:#x}")]
    SystemCall(u64),
    /// The stack pointer is not known at this address.
    #[error("the stack pointer at {0:#x} is not known")]
    Stack(u64),
    /// Other code, at this address, jumps into the function.
    #[error("other code, at {0:#x}, jumps into the function")]
    JumpedInto(u64),
    /// A path to the return at this address has no emulated instruction with the block in a register.
    #[error("a path to the return at {0:#x} has no emulated instruction with the block in a register")]
    Uncounted(u64),
    /// At this address, the place of a register of the caller is not known.
    #[error("the caller's registers are not in the frame at {0:#x}")]
    Unsaved(u64),
    /// The frame at this address is too large for the BPF cookie of a site.
    #[error("the frame at {0:#x} is too large")]
    LargeFrame(u64),
    /// There is too much code to search for jumps into the function.
    #[error("the object has too much code to search for jumps into the function")]
    TooMuchCode,
    /// An exception may end the call that is pending after this address.
    #[error("an exception may end the call after {0:#x}")]
    Throws(u64),
    /// A path may pass the only possible site twice.
    #[error("a loop contains the block")]
    Loop,
    /// No register has the size at a result site, and size sites do not cover the paths to it.
    #[error("no instruction has the block and the size in registers")]
    NoSize,
}
