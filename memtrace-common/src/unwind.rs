//! Layout of unwind tables in the BPF maps, which user space writes and the BPF programs read.
//!
//! The call frame information of an object is converted to *rows*. Each row has an address and the *rule* that holds
//! from this address to the next row. Rules are few and shared by all objects. Rows are stored in blobs, grouped by
//! page of the object's addresses. A *mapping* has the address range of an object in a process, and the index of the
//! object's first page. A lookup finds the mapping of an address, its page, the row by a binary search, and the rule.

use core::mem::size_of;

/// Unwind rule: computes the caller's registers from the registers of a frame.
///
/// The canonical frame address (CFA) is the stack pointer before the call (DWARF 5, section 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(C)]
pub struct Rule {
    /// Computation of the CFA: a constant of [`cfa`].
    pub cfa_kind: u8,
    /// Computation of the caller's frame pointer: a constant of [`fp`].
    pub fp_kind: u8,
    /// Computation of the return address: a constant of [`ra`].
    pub ra_kind: u8,
    /// Padding: zero.
    pub reserved: u8,
    /// Offset in bytes for the computation of the CFA; see [`cfa`].
    pub cfa_offset: i32,
    /// Offset in bytes for the computation of the frame pointer; see [`fp`].
    pub fp_offset: i32,
    /// Second offset in bytes, or DWARF number of a register; see [`cfa`] and [`ra`].
    pub extra: i32,
}

/// Computations of the CFA.
pub mod cfa {
    /// There is no call frame information.
    pub const NONE: u8 = 0;
    /// Stack pointer + `cfa_offset`.
    pub const SP: u8 = 1;
    /// Frame pointer + `cfa_offset`.
    pub const FP: u8 = 2;
    /// In a PLT entry: stack pointer + 8, and another 8 if `pc & 15 >= cfa_offset`.
    pub const PLT: u8 = 3;
    /// *(stack pointer + `cfa_offset`) + `extra`.
    pub const DEREF_SP: u8 = 4;
    /// *(frame pointer + `cfa_offset`) + `extra`.
    pub const DEREF_FP: u8 = 5;
    /// A signal frame: all registers are in the context that the kernel pushed on the stack.
    pub const SIGNAL: u8 = 6;
    /// The outermost frame: there is no caller.
    pub const END: u8 = 7;
    /// Value of the register with the DWARF number `extra`, plus `cfa_offset`. The register is known in the leaf frame only.
    pub const REGISTER: u8 = 8;
    /// The call frame information cannot be expressed as a rule.
    pub const UNTABLED: u8 = 9;
    /// In `runtime.asmcgocall` of Go, which calls a C function on the stack of the thread. The caller is on the stack
    /// of the goroutine. The word at stack pointer + `extra` is the address of the goroutine. The word at stack pointer +
    /// `cfa_offset` is the distance from the goroutine's stack pointer to the end of its stack.
    pub const GOROUTINE: u8 = 10;
}

/// Computations of the caller's frame pointer.
pub mod fp {
    /// The caller has the same frame pointer.
    pub const SAME: u8 = 0;
    /// Saved at CFA + `fp_offset`.
    pub const AT_CFA: u8 = 1;
    /// Saved at frame pointer + `fp_offset`, in functions that realign their stack.
    pub const AT_FP: u8 = 2;
    /// The caller's frame pointer is not known.
    pub const UNDEFINED: u8 = 3;
}

/// Computations of the return address.
pub mod ra {
    /// At CFA - 8, where the call instruction of x86-64 pushes it.
    pub const AT_CFA_MINUS_8: u8 = 0;
    /// In the link register (aarch64, leaf frames).
    pub const LINK_REGISTER: u8 = 1;
    /// At CFA + `extra` (aarch64).
    pub const AT_CFA: u8 = 2;
    /// In the register with the DWARF number `extra`, which is known in the leaf frame only.
    pub const REGISTER: u8 = 3;
}

/// Binary logarithm of the size in bytes of an address page. Rows are grouped by these pages.
pub const PAGE_BITS: u32 = 12;
/// Number of lower bits of a row that hold the index of the rule. The upper [`PAGE_BITS`] bits are the address within
/// the page.
pub const RULE_BITS: u32 = 20;
/// Maximum number of rules.
pub const MAX_RULES: usize = 1 << 15;
/// Binary logarithm of the number of rows in a blob. A blob has 1 MiB.
pub const BLOB_BITS: u32 = 18;
/// Number of rows in a blob.
pub const BLOB_ROWS: usize = 1 << BLOB_BITS;
/// Maximum number of blobs: 256 MiB in total.
pub const MAX_BLOBS: usize = 256;
/// Maximum number of pages of all objects together: 4 GiB of addresses.
pub const MAX_PAGES: usize = 1 << 20;
/// Maximum number of objects with an [`ObjectTable`].
pub const MAX_OBJECTS: usize = 1 << 13;
/// Maximum number of processes with a [`Process`] entry.
pub const MAX_PROCESSES: usize = 1 << 14;
/// Maximum number of steps of the binary search in a page. They suffice for 2^12 rows, one for each byte of a page.
pub const SEARCH_STEPS: u32 = 13;

/// Encodes a row: `rule` applies from `address` to the next row. The row stores only the offset of `address` in its
/// page.
#[must_use]
pub const fn row(address: u64, rule: u32) -> u32 {
    ((address as u32 & ((1 << PAGE_BITS) - 1)) << RULE_BITS) | rule
}

/// Encodes a page: `count` rows from row `first` on. Row numbers continue from one blob to the next. All rows of a page are in
/// one blob, together with the row before them. That row applies at the start of the page.
#[must_use]
pub const fn page(first: u32, count: u32) -> u64 {
    first as u64 | (count as u64) << 32
}

/// Value of a page until its rows are written. No written page starts at row 0, because each page has a row before it.
pub const PENDING_PAGE: u64 = page(0, 1);

/// An executable address range of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Mapping {
    /// First address.
    pub begin: u64,
    /// Address after the last.
    pub end: u64,
    /// Address in the process minus the address in the object.
    pub bias: u64,
    /// Index of the object's first page among the pages of all objects.
    pub page_base: u32,
    /// Number of the object's pages (lower 24 bits) and a constant of [`mapping`] (upper 8 bits).
    pub pages_and_kind: u32,
}

/// Identity of a file inside the kernel. On some file systems, such as overlayfs and btrfs, `stat` returns another
/// identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(C)]
pub struct ObjectKey {
    /// Number of the inode; 0 for the vDSO.
    pub inode: u64,
    /// Change time of the inode, in whole seconds. A file that reuses the number of an inode has a later change time.
    pub changed_s: i64,
    /// Change time of the inode: nanoseconds within the second.
    pub changed_ns: u32,
    /// Device in the kernel's encoding: the major number above 20 bits of the minor number.
    pub device: u32,
}

/// Answer of the BPF programs that identify a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FileIdReply {
    /// Identity of the file, if the status is [`file_id_status::FOUND`].
    pub object: ObjectKey,
    /// Result: a constant of [`file_id_status`].
    pub status: u32,
    /// Type of its file system: `s_magic`.
    pub file_system: u32,
}

/// Results of identifying a file.
pub mod file_id_status {
    /// There is no such file, or its identity could not be read.
    pub const UNKNOWN: u32 = 0;
    /// The file is identified.
    pub const FOUND: u32 = 1;
    /// Another thread is changing the process's mappings: try again.
    pub const BUSY: u32 = 2;
}

/// An executable segment of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Segment {
    /// File offset of the first byte.
    pub offset: u64,
    /// File offset after the last byte; a segment with `end <= offset` is unused.
    pub end: u64,
    /// Address in the object, relative to the object's first page, minus the file offset.
    pub shift: u64,
}

/// Maximum number of executable segments of an object. Linkers make one executable segment. A tool that moves code
/// after linking adds a second one.
pub const MAX_SEGMENTS: usize = 4;

/// Unwind table of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ObjectTable {
    /// Same as [`Mapping::page_base`].
    pub page_base: u32,
    /// Same as [`Mapping::pages_and_kind`].
    pub pages_and_kind: u32,
    /// Executable segments.
    pub segments: [Segment; MAX_SEGMENTS],
}

/// Kinds of mappings, which select the way to unwind from their addresses.
pub mod mapping {
    /// Use the unwind table.
    pub const TABLE: u8 = 0;
    /// Follow frame pointers: the code was generated at run time.
    pub const GENERATED: u8 = 1;
    /// The table has been requested and is not there yet.
    pub const PENDING: u8 = 2;
    /// There is no table.
    pub const UNUSABLE: u8 = 3;
}

/// Generation of a process's mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Process {
    /// Process id; 0 if the generation is used for a single stack.
    pub pid: u32,
    /// Number of the generation, never 0. A process gets a new generation when its executable mappings change, so that lookups
    /// cached for the old mappings are not used. A forked process keeps its parent's generation until then.
    pub generation: u32,
    /// Number of executable pages of the process at the start of the generation.
    pub code_pages: u32,
}

const _: () = {
    assert!(size_of::<Rule>() == 16);
    assert!(size_of::<Mapping>() == 32);
    assert!(size_of::<ObjectKey>() == 24);
    assert!(size_of::<FileIdReply>() == 32);
    assert!(size_of::<ObjectTable>() == 8 + MAX_SEGMENTS * 24);
    assert!(size_of::<Process>() == 12);
    assert!(PAGE_BITS + RULE_BITS == u32::BITS);
    assert!(MAX_RULES <= 1 << RULE_BITS);
};
