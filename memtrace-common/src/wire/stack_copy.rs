//! Copies of user stacks. If a walk ends at an object without an unwind table, user space finishes the walk from a
//! copy.
//!
//! A copy starts with a [`super::StackRecord`], which has the frames so far and the id of the copy. Pieces of the stack
//! follow, from the lowest address on, then a [`CopyEnd`]. The records of different threads are interleaved.

use core::mem::{offset_of, size_of};

/// Kinds of records in the ring of stack copies, in addition to [`super::RecordKind::Stack`].
pub mod copy_kind {
    /// A [`super::CopyPiece`].
    pub const PIECE: u32 = 0x100;
    /// A [`super::CopyEnd`].
    pub const END: u32 = 0x101;
}

/// Number of 8-byte words of a piece, which has 1 KiB. Pieces are aligned to their size, so that a piece is readable
/// either as a whole or not at all.
pub const PIECE_WORDS: usize = 128;
/// Size of a piece in bytes.
pub const PIECE_BYTES: u64 = PIECE_WORDS as u64 * 8;
/// Maximum number of pieces of a stack: 32 KiB.
pub const MAX_PIECES: u32 = 32;

/// Number of registers of the leaf frame in a [`CopyEnd`]: the registers with the DWARF numbers 0 to 15.
pub const LEAF_REGISTERS: usize = 16;

/// A piece of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CopyPiece {
    /// Kind of record: [`copy_kind::PIECE`].
    pub kind: u32,
    /// Padding: zero.
    pub reserved: u32,
    /// Id of the copy.
    pub stack: u64,
    /// Address of the first word.
    pub address: u64,
    /// Contents of the stack from `address` on; zeros if the piece is unreadable.
    pub words: [u64; PIECE_WORDS],
}

/// End of a copy, with the position of the walk at its last frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CopyEnd {
    /// Kind of record: [`copy_kind::END`].
    pub kind: u32,
    /// Maximum number of frames of the stack.
    pub depth: u32,
    /// Id of the copy. Events have this stack id.
    pub stack: u64,
    /// Id of the cut stack.
    pub cut: u64,
    /// Seed of the ids of the process's stacks.
    pub seed: u64,
    /// Instruction pointer of the last frame.
    pub ip: u64,
    /// Stack pointer of the last frame.
    pub sp: u64,
    /// Frame pointer of the last frame.
    pub fp: u64,
    /// Flags of the walk, as `memtrace-unwind` defines them.
    pub flags: u32,
    /// Process id, in the root pid namespace. If processes share their memory, it is the process that had the memory first.
    pub pid: u32,
    /// Start address of the main thread's stack.
    pub stack_start: u64,
    /// Registers of the leaf frame, by DWARF number.
    pub leaf: [u64; LEAF_REGISTERS],
}

const _: () = {
    assert!(size_of::<CopyPiece>() == 24 + PIECE_BYTES as usize);
    assert!(offset_of!(CopyPiece, words) == 24);
    assert!(size_of::<CopyEnd>() == 72 + LEAF_REGISTERS * 8);
    assert!(offset_of!(CopyEnd, leaf) == 72);
};
