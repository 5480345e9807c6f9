//! Probe of a function.

use memtrace_common::vocabulary::ResultCookie;
use memtrace_model::{AllocatorId, FileOffset, Signature};

/// Probe of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Calling signature of the function.
    pub signature: Signature,
    /// Probed instruction.
    pub offset: FileOffset,
    /// Return instructions to probe instead of using a uretprobe, which changes the return address: the unwinder cannot find
    /// the handler of an exception that passes such a frame. Empty: a uretprobe is used.
    pub return_sites: Vec<FileOffset>,
    /// Allocator of the function, if events contain it.
    pub allocator: AllocatorId,
    /// Number of the function, if its calls are timed.
    pub function: Option<u16>,
    /// Each block of the allocator has its size before it, as in glibc, and the usable sizes are recorded.
    pub has_sizes: bool,
    /// The function calls no other hooked function.
    pub is_leaf: bool,
    /// Instruction at which a register has the size of the block that the function frees.
    pub loaded_word: Option<LoadedWordSite>,
    /// Instructions at which registers have the block and its size; `None` if the entry and the return are probed.
    pub results: Option<ResultProbes>,
}

/// Instructions of a function at which registers have the block or its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultProbes {
    /// Those with the block.
    pub results: Vec<(FileOffset, ResultCookie)>,
    /// Those with the size only.
    pub sizes: Vec<(FileOffset, ResultCookie)>,
    /// Functions that return a block in place of this one.
    pub slow: Vec<FileOffset>,
}

/// Instruction at which a register has the word in front of a block, which is its size with flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedWordSite {
    /// Probed instruction.
    pub offset: FileOffset,
    /// DWARF number of the register.
    pub register: u8,
    /// Bytes by which the stack pointer is lower than at the entry.
    pub lowered: u8,
}
