//! Sites of an allocator: the instructions that a jump replaces.

use memtrace_model::{FileOffset, VirtOffset};

use super::refusal::SiteRefusal;
use crate::allocators::Kinds;
use crate::probe_site::GeneralRegister;

/// An instruction that is replaced by a jump, with all that the stub needs to know.
///
/// Every call of the function that may return or free a block executes the instruction once. F is the value of the stack pointer
/// at the entry, which is the address of the return address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlaySite {
    /// Name of the function for reports.
    pub name: String,
    /// Entry of the function. It may be code that several functions share.
    pub function: VirtOffset,
    /// File offset of the entry.
    pub entry_offset: FileOffset,
    /// File offset of the site.
    pub offset: FileOffset,
    /// Address of the site.
    pub virt: VirtOffset,
    /// The whole instruction, of 5 to 15 bytes.
    pub original: Vec<u8>,
    /// Operand that is relative to the address after the instruction; `None` if there is none.
    pub relative: Option<Relative>,
    /// True if the instruction is an unconditional jump, so that nothing follows it.
    pub is_jump: bool,
    /// Instruction that sets the flags, directly before the site. The stub repeats it. It compares registers and constants. Empty
    /// if the flags are not in use.
    pub replay: Vec<u8>,
    /// Places of the arguments that the stub reads.
    pub kind: SiteKind,
    /// F minus the stack pointer at the site, in bytes: a multiple of 8.
    pub lowered: u32,
    /// Registers of the caller in the frame. The slot of each is at F minus the number.
    pub saved: Vec<(GeneralRegister, u32)>,
    /// Caller-saved registers that the stub may overwrite: two for functions that free a block, one for a product. None of
    /// them is in `arguments`.
    pub scratch: Vec<GeneralRegister>,
    /// Arguments that the function may have, by their numbers from 0, and the register of each at the site.
    pub arguments: Vec<(u8, GeneralRegister)>,
}

/// Operand that is relative to the address after its instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relative {
    /// Offset of the 32-bit distance in the instruction, in bytes.
    pub at: u8,
    /// Address that the operand leads to.
    pub target: VirtOffset,
}

/// Purpose of a function, with the registers of its arguments at the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// The function returns a block of `size` bytes, or null.
    Alloc {
        /// Size in bytes.
        size: GeneralRegister,
    },
    /// The function returns a block of `count * size` bytes, or null.
    Product {
        /// Number of elements.
        count: GeneralRegister,
        /// Size of an element in bytes.
        size: GeneralRegister,
    },
    /// The function returns 0 and stores the address of a block, or returns an error number.
    AllocOut {
        /// Address of the variable for the address of the block.
        out: GeneralRegister,
        /// Size in bytes.
        size: GeneralRegister,
    },
    /// The function frees a block and returns one of `size` bytes, or returns null and keeps the block.
    Realloc {
        /// Address of the old block, which may be null.
        old: GeneralRegister,
        /// New size in bytes.
        size: GeneralRegister,
        /// True if a call without an old block leads to another function with a site, which counts it.
        null_forwards: bool,
    },
    /// The function frees a block, or does nothing for null.
    Free {
        /// Address of the block.
        block: GeneralRegister,
    },
}

/// Sites of an allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorSites {
    /// The allocator.
    pub kinds: Kinds,
    /// Sites, one for each function, in the order of the functions.
    pub sites: Vec<OverlaySite>,
    /// Names of the functions with calls that no site counts, with the reasons.
    pub gaps: Vec<(String, SiteRefusal)>,
}
