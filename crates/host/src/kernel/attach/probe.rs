//! Description of the probes of one hooked function.

use memtrace_common::vocabulary::ResultCookie;
use memtrace_model::{AllocatorId, FileOffset, Signature};

/// Probes of one hooked function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Calling signature of the function.
    pub signature: Signature,
    /// Probed instruction.
    pub offset: FileOffset,
    /// File offsets of the return instructions to probe. If there are none, a uretprobe is used. A uretprobe replaces
    /// the return address, so an exception that passes the frame finds no handler.
    pub return_sites: Vec<FileOffset>,
    /// Allocator of the function; [`AllocatorId::UNKNOWN`] if events do not contain it.
    pub allocator: AllocatorId,
    /// Number of the function, if its calls are timed.
    pub function: Option<u16>,
    /// True if the allocator stores the size in front of each block, as glibc does, and usable sizes are recorded.
    pub has_sizes: bool,
    /// True if the function calls no other hooked function.
    pub is_leaf: bool,
    /// Instruction with the size of the freed block in a register.
    pub loaded_word: Option<LoadedWordSite>,
    /// Instructions with the block or its size in a register; `None` to probe the entry and the return instead.
    pub results: Option<ResultProbes>,
}

/// Instructions of a function at which a register holds the block or its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultProbes {
    /// File offsets of the instructions with the block in a register.
    pub results: Vec<(FileOffset, ResultCookie)>,
    /// File offsets of the instructions with only the size in a register, not the block.
    pub sizes: Vec<(FileOffset, ResultCookie)>,
    /// File offsets of functions that return a block in place of this one, by a tail call.
    pub slow: Vec<FileOffset>,
}

/// Instruction at which a register holds the word in front of a block: the size of the block, with flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedWordSite {
    /// Probed instruction.
    pub offset: FileOffset,
    /// DWARF number of the register.
    pub register: u8,
    /// Difference in bytes between the stack pointer at the function's entry and its lower value at the instruction.
    pub lowered: u8,
}
