//! How unwind tables lie in the maps, as user space writes them and the kernel half reads them.
//!
//! An object's call frame information becomes *rows*: from this address on, that *rule* holds. Rules are few and shared by
//! all objects. Rows lie in blobs, page by page of the object's addresses; a *mapping* says where in a process an object
//! lies and where its pages begin. Looking up an address is then: mapping, page, a short binary search, rule.

use core::mem::size_of;

/// How to step from a frame to its caller.
///
/// The canonical frame address (CFA) is the stack pointer before the call, as DWARF 5, section 6.4, has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(C)]
pub struct Rule {
    /// How the CFA is found: one of [`cfa`]'s.
    pub cfa_kind: u8,
    /// How the caller's frame pointer is found: one of [`fp`]'s.
    pub fp_kind: u8,
    /// How the return address is found: one of [`ra`]'s.
    pub ra_kind: u8,
    /// Zero.
    pub reserved: u8,
    /// An offset in bytes; see [`cfa`].
    pub cfa_offset: i32,
    /// An offset in bytes; see [`fp`].
    pub fp_offset: i32,
    /// One more offset or a register's number; see [`cfa`] and [`ra`].
    pub extra: i32,
}

/// How the CFA is found.
pub mod cfa {
    /// There is no call frame information here.
    pub const NONE: u8 = 0;
    /// Stack pointer + `cfa_offset`.
    pub const SP: u8 = 1;
    /// Frame pointer + `cfa_offset`.
    pub const FP: u8 = 2;
    /// In a PLT entry: stack pointer + 8, and 8 more where `pc & 15 >= cfa_offset`.
    pub const PLT: u8 = 3;
    /// *(stack pointer + `cfa_offset`) + `extra`.
    pub const DEREF_SP: u8 = 4;
    /// *(frame pointer + `cfa_offset`) + `extra`.
    pub const DEREF_FP: u8 = 5;
    /// A signal frame: all registers are in the context that the kernel put on the stack.
    pub const SIGNAL: u8 = 6;
    /// The outermost frame: there is no caller.
    pub const END: u8 = 7;
    /// Register `extra` (DWARF number) + `cfa_offset`; known in the leaf frame only.
    pub const REGISTER: u8 = 8;
    /// There is information, but it cannot be put into a table.
    pub const UNTABLED: u8 = 9;
}

/// How the caller's frame pointer is found.
pub mod fp {
    /// It is the same.
    pub const SAME: u8 = 0;
    /// At CFA + `fp_offset`.
    pub const AT_CFA: u8 = 1;
    /// At frame pointer + `fp_offset`, as functions that realign their stack keep it.
    pub const AT_FP: u8 = 2;
    /// It is not known.
    pub const UNDEFINED: u8 = 3;
}

/// How the return address is found.
pub mod ra {
    /// At CFA - 8, where x86-64's call puts it.
    pub const AT_CFA_MINUS_8: u8 = 0;
    /// In the link register (aarch64, leaf frames).
    pub const LINK_REGISTER: u8 = 1;
    /// At CFA + `extra` (aarch64).
    pub const AT_CFA: u8 = 2;
    /// In register `extra` (DWARF number); known in the leaf frame only.
    pub const REGISTER: u8 = 3;
}

/// A page of addresses that rows are grouped by: 2^12 bytes.
pub const PAGE_BITS: u32 = 12;
/// A row's lower bits hold its rule's number, its upper [`PAGE_BITS`] the address within the page.
pub const RULE_BITS: u32 = 20;
/// The most rules.
pub const MAX_RULES: usize = 1 << 15;
/// How many rows a blob holds: 2^18, 1 MiB.
pub const BLOB_BITS: u32 = 18;
/// Rows of a blob.
pub const BLOB_ROWS: usize = 1 << BLOB_BITS;
/// The most blobs: 256 MiB.
pub const MAX_BLOBS: usize = 256;
/// The most pages of all objects together: 4 GiB of addresses.
pub const MAX_PAGES: usize = 1 << 20;
/// The most mappings of all processes together.
pub const MAX_MAPPINGS: usize = 1 << 18;
/// The most objects.
pub const MAX_OBJECTS: usize = 1 << 13;
/// The most processes.
pub const MAX_PROCESSES: usize = 1 << 14;
/// The most rows of one page that a lookup may have to search: 2^12, one a byte.
pub const SEARCH_STEPS: u32 = 13;
/// The most mappings of one process that a lookup may have to search: 2^12.
pub const MAPPING_STEPS: u32 = 12;

/// A row: from this address within its page on, this rule holds, until the next row.
#[must_use]
pub const fn row(address: u64, rule: u32) -> u32 {
    ((address as u32 & ((1 << PAGE_BITS) - 1)) << RULE_BITS) | rule
}

/// Where a page's rows lie: `first` counts rows through all blobs. The rows of a page lie in one blob, and the row before
/// the first is in the same blob and says what holds at the page's beginning.
#[must_use]
pub const fn page(first: u32, count: u32) -> u64 {
    first as u64 | (count as u64) << 32
}

/// A range of a process' addresses with code in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Mapping {
    /// The first address.
    pub begin: u64,
    /// The address behind the last.
    pub end: u64,
    /// What to subtract from an address to get the object's own.
    pub bias: u64,
    /// Where the object's pages begin.
    pub page_base: u32,
    /// How many pages the object has (lower 24 bits), and what to do here (upper 8): one of [`mapping`]'s.
    pub pages_and_kind: u32,
}

/// Which file an object is, as the kernel knows it: the device and inode that are mapped, and when the inode last
/// changed. What `stat` says of a file is the same except on file systems that lie over others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(C)]
pub struct ObjectKey {
    /// The inode's number. 0: the code that the kernel lends to every process (vDSO).
    pub inode: u64,
    /// The inode's change time, in seconds since 1970. An inode's number may be given to another file, which has changed
    /// later.
    pub changed_s: i64,
    /// Its nanoseconds.
    pub changed_ns: u32,
    /// The device, as the kernel counts them: the major number above 20 bits of the minor one.
    pub device: u32,
}

/// What the kernel half answers who asks how the kernel knows a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FileIdReply {
    /// The file.
    pub object: ObjectKey,
    /// Whether that is so: one of [`file_id_status`]'s.
    pub status: u32,
    /// Zero.
    pub reserved: u32,
}

/// What became of asking for a file.
pub mod file_id_status {
    /// There is no such file, or the kernel cannot be asked.
    pub const UNKNOWN: u32 = 0;
    /// It was told.
    pub const FOUND: u32 = 1;
    /// Another thread changes the process' mappings: it may be asked again.
    pub const BUSY: u32 = 2;
}

/// A part of an object's file that is mapped as code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Segment {
    /// Where in the file it begins.
    pub offset: u64,
    /// The offset behind its last byte; not above `offset`: there is no such part.
    pub end: u64,
    /// What to add to an offset in the file to get the object's own address, counted from its first page.
    pub shift: u64,
}

/// The most parts of code that an object can have. Linkers make one; two where the code was laid out anew afterwards.
pub const MAX_SEGMENTS: usize = 4;

/// Where an object's table lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ObjectTable {
    /// As in [`Mapping`].
    pub page_base: u32,
    /// As in [`Mapping`].
    pub pages_and_kind: u32,
    /// Its code.
    pub segments: [Segment; MAX_SEGMENTS],
}

/// What to do with addresses in a mapping.
pub mod mapping {
    /// Look into the table.
    pub const TABLE: u8 = 0;
    /// Code generated at run time: follow frame pointers.
    pub const GENERATED: u8 = 1;
    /// There is no table yet.
    pub const PENDING: u8 = 2;
    /// There will be no table.
    pub const UNUSABLE: u8 = 3;
}

/// What is known of a process' mappings: where they lie, ordered by address, or, where there are none, that the kernel
/// is to be asked for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Process {
    /// The first, counted through the map of mappings; where the kernel is asked, whose they are: the process' id.
    pub base: u32,
    /// How many; 0: the kernel is asked.
    pub count: u32,
    /// Never 0, and another whenever the mappings change, in all processes, so that what was remembered under the old
    /// ones is not used.
    pub generation: u32,
    /// Where the kernel is asked: how many pages of code the process had when the generation began.
    pub code_pages: u32,
}

const _: () = {
    assert!(size_of::<Rule>() == 16);
    assert!(size_of::<Mapping>() == 32);
    assert!(size_of::<ObjectKey>() == 24);
    assert!(size_of::<FileIdReply>() == 32);
    assert!(size_of::<ObjectTable>() == 8 + MAX_SEGMENTS * 24);
    assert!(size_of::<Process>() == 16);
    assert!(PAGE_BITS + RULE_BITS == u32::BITS);
    assert!(MAX_RULES <= 1 << RULE_BITS);
};
