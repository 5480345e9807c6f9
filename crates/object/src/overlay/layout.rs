//! Layout of the stub in a patched process: code in a memfd, private data after it, and words in glibc's thread header.
//!
//! The code is mapped at the base, readable and executable. The data is an anonymous mapping that follows immediately; its first
//! page is the control page. Both are private to the process.

use std::ops::RangeInclusive;

/// Name of the memfd.
pub const MEMFD_NAME: &str = "memtrace-stub";
/// Path of the memfd in `/proc/PID/maps`.
pub const MAPS_PATH: &str = "/memfd:memtrace-stub (deleted)";
/// First bytes of the file. They change with each change of the layout or of the machine code.
pub const MAGIC: [u8; 8] = *b"MTSTUB01";
/// Size of the file and of its mapping: header, routines, stubs of sites, draw table.
pub const CODE_SIZE: u64 = 0x8000;
/// Size of the data.
pub const DATA_SIZE: u64 = 0x8_5000;
/// Size of code and data.
pub const TOTAL_SIZE: u64 = CODE_SIZE + DATA_SIZE;

/// File offset of the [`StubHeader`], which up to [`MAX_SITES`] records of type [`SiteRecord`] follow.
pub const HEADER: u64 = 0;
/// File offset of the routines. The stubs of sites follow them, up to [`DRAWS`].
pub const ROUTINES: u64 = 0x1000;
/// File offset of the [`draw_table`].
pub const DRAWS: u64 = 0x5000;
/// Maximum number of sites.
pub const MAX_SITES: usize = 28;

/// Offset in the data of the number of the session: 64 bits, never 0.
pub const EPOCH: u64 = 0x00;
/// Offset in the data of the mean interval in bytes before the shift: 64 bits, from 1 to 2^32.
pub const INTERVAL_BASE: u64 = 0x08;
/// Offset in the data of the shift: 8 bits. The mean interval is base << shift, at most 2^32.
pub const SHIFT: u64 = 0x10;
/// Offset in the data of the thinning level: 8 bits, from 0 to 15.
pub const LEVEL: u64 = 0x18;
/// Offset in the data of the salt of the thinning hash: 64 bits.
pub const SALT: u64 = 0x20;
/// Offset in the data of the number of threads in the cold path: 64 bits.
pub const IN_COLD: u64 = 0x28;
/// Offset in the data of the sum of all countdowns that threads have begun, less what was left of the previous ones: 64 bits. The
/// allocated bytes are this sum less the current countdowns, by wrapping arithmetic.
pub const DRAWN: u64 = 0x30;
/// Offset in the data of the number of threads that have begun to count: 64 bits.
pub const FIRST_DRAWS: u64 = 0x38;
/// Offset in the data of the number of addresses that were inserted into the table: 64 bits.
pub const SAMPLES: u64 = 0x40;
/// Offset in the data of the number of addresses that a free or a reallocation has found in the table: 64 bits.
pub const FREES: u64 = 0x48;
/// Offset in the data of the number of samples that were lost because the table was full at level 15: 64 bits.
pub const NOT_INSERTED: u64 = 0x50;
/// Offset in the data of the number of searches in the table: 64 bits.
pub const CHECKS: u64 = 0x58;
/// Offset in the data of the number of calls with a size of 2^47 bytes or more: 64 bits.
pub const LARGE: u64 = 0x60;
/// Offset in the data of the pid of the memtrace that takes the samples, 0 for none: 64 bits.
pub const OWNER_PID: u64 = 0x68;
/// Offset in the data of the start time of that memtrace: 64 bits.
pub const OWNER_START: u64 = 0x70;
/// Offset in the data of the greatest distance, in slots, between an address in the table and its first slot: 8 bits. A search
/// goes no farther. The distance only grows. It is 0 in a new table.
pub(crate) const MAX_DISTANCE: u64 = 0x78;
/// Offset in the data of the filter: each byte counts the addresses in the table with the same bits 4 to 17. A count that has
/// reached 255 no longer changes.
pub const FILTER: u64 = 0x1000;
/// Offset in the data of the table of sampled addresses: 64 bits each. The word 0 is a slot that was never used, and 1 is a slot
/// whose address was removed. The upper 8 bits are the thinning level at which the address was inserted. The first slot of an
/// address is the upper 16 bits of its product with 0x9e3779b97f4a7c15.
pub const TABLE: u64 = 0x5000;
/// Number of counts of the filter.
pub(crate) const FILTER_SIZE: u64 = 0x4000;
/// Number of slots of the table.
pub const SLOTS: u64 = 65_536;
/// Maximum number of slots that an insertion or a search examines.
pub(crate) const PROBED_SLOTS: u32 = 64;

/// Offset from the thread pointer of the bytes until the next sample: 64 bits, below 2^40 between calls.
///
/// The four words are in `__glibc_unused2` of `tcbhead_t`, at 0x80 to 0x280 (sysdeps/x86_64/nptl/tls.h). glibc keeps them because
/// programs depend on the size of the structure.
pub const COUNTDOWN: u32 = 0x80;
/// Offset from the thread pointer of the state of the random number generator: 64 bits.
pub const RANDOM: u32 = 0x88;
/// Offset from the thread pointer of the session to which the other words belong: 64 bits.
pub const THREAD_EPOCH: u32 = 0x90;
/// Offset from the thread pointer of the mean interval with which the countdown was drawn: 64 bits.
pub const THREAD_INTERVAL: u32 = 0x98;
/// Versions of glibc with these words.
pub const GLIBC_VERSIONS: RangeInclusive<(u32, u32)> = (2, 31)..=(2, 41);

/// Offset of the block's address from the stack pointer when the probe of an allocation is hit. The word is in the red zone.
pub const AT_BLOCK: i64 = -104;
/// Offset of the block's size from the stack pointer when the probe of an allocation is hit.
pub const AT_SIZE: i64 = -112;
/// Offset of the interval word from the stack pointer when the probe of an allocation is hit: mean interval | level << 56.
pub const AT_INTERVAL: i64 = -120;

/// Number of values in the draw table.
const DRAW_VALUES: usize = 1025;
/// Size of a [`StubHeader`].
pub(super) const HEADER_SIZE: usize = 64;
/// Size of a [`SiteRecord`].
pub(super) const RECORD_SIZE: usize = 136;

/// First bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StubHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Address at which the file is mapped.
    pub base: u64,
    /// Number of [`SiteRecord`]s after the header.
    pub sites: u32,
    /// File offset of the end of the code.
    pub code_end: u32,
    /// File offset of the `nop` that is executed when a sampled block is freed.
    pub free_probe: u32,
    /// File offset of the `nop` that is executed before a sampled block is reallocated.
    pub tentative_probe: u32,
    /// File offset of the `nop` that is executed when the reallocation of a sampled block has failed.
    pub undo_probe: u32,
    /// File offset of the `nop` that is executed when a block was sampled.
    pub alloc_probe: u32,
    /// FNV-1a of the file after the header.
    pub checksum: u64,
    /// Padding: zero.
    pub reserved: [u64; 2],
}

/// Site of a patched function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SiteRecord {
    /// Address of the site in the process.
    pub address: u64,
    /// Offset of the site in the file of its object.
    pub file_offset: u64,
    /// Device of the object, as in `/proc/PID/maps`.
    pub device: u64,
    /// Inode of the object.
    pub inode: u64,
    /// Address of the function in the process.
    pub entry: u64,
    /// File offset of the code for the site.
    pub stub: u32,
    /// Length of the replaced instruction.
    pub length: u8,
    /// 0 for a function that only frees, else 1.
    pub is_alloc: u8,
    /// Padding: zero.
    pub reserved: u16,
    /// The replaced instruction, padded with zeros.
    pub original: [u8; 16],
    /// The jump to the stub.
    pub jump: [u8; 5],
    /// Padding: zero.
    pub padding: [u8; 3],
    /// Name of the function in UTF-8, padded with zeros.
    pub name: [u8; 64],
}

impl StubHeader {
    /// Returns the bytes of the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 64] {
        joined(&[
            &self.magic,
            &self.base.to_le_bytes(),
            &self.sites.to_le_bytes(),
            &self.code_end.to_le_bytes(),
            &self.free_probe.to_le_bytes(),
            &self.tentative_probe.to_le_bytes(),
            &self.undo_probe.to_le_bytes(),
            &self.alloc_probe.to_le_bytes(),
            &self.checksum.to_le_bytes(),
            self.reserved.map(u64::to_le_bytes).as_flattened(),
        ])
    }

    /// Reads the header at the start of `bytes`. Returns `None` if the bytes are too short, of another version, or have too many
    /// sites.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let header = Self {
            magic: fields.take()?,
            base: fields.word()?,
            sites: fields.half()?,
            code_end: fields.half()?,
            free_probe: fields.half()?,
            tentative_probe: fields.half()?,
            undo_probe: fields.half()?,
            alloc_probe: fields.half()?,
            checksum: fields.word()?,
            reserved: [fields.word()?, fields.word()?],
        };
        (header.magic == MAGIC && header.sites as usize <= MAX_SITES).then_some(header)
    }
}

impl SiteRecord {
    /// Returns the bytes of the record.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 136] {
        joined(&[
            &self.address.to_le_bytes(),
            &self.file_offset.to_le_bytes(),
            &self.device.to_le_bytes(),
            &self.inode.to_le_bytes(),
            &self.entry.to_le_bytes(),
            &self.stub.to_le_bytes(),
            &[self.length, self.is_alloc],
            &self.reserved.to_le_bytes(),
            &self.original,
            &self.jump,
            &self.padding,
            &self.name,
        ])
    }

    /// Reads the record at the start of `bytes`. Returns `None` if the bytes are too short.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            address: fields.word()?,
            file_offset: fields.word()?,
            device: fields.word()?,
            inode: fields.word()?,
            entry: fields.word()?,
            stub: fields.half()?,
            length: fields.byte()?,
            is_alloc: fields.byte()?,
            reserved: fields.take().map(u16::from_le_bytes)?,
            original: fields.take()?,
            jump: fields.take()?,
            padding: fields.take()?,
            name: fields.take()?,
        })
    }

    /// Returns the name of the function.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// Bytes of fields that are not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn half(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn word(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// Joins fields with `N` bytes in all.
fn joined<const N: usize>(fields: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    for (byte, value) in bytes.iter_mut().zip(fields.iter().copied().flatten()) {
        *byte = *value;
    }
    bytes
}

/// Returns the draw table: entry j is -ln(1/2 + j/2048) in 32.32 fixed point. Entry 0 is ln 2, and entry 1024 is 0.
#[must_use]
pub(crate) fn draw_table() -> [u64; 1025] {
    let mut table = [0; DRAW_VALUES];
    // In 64.64 fixed point. The entries are differences of logarithms of whole numbers, added from the last entry on: integers give
    // the same bytes on each machine.
    let mut sum = 0;
    for (entry, value) in table.iter_mut().enumerate().rev().skip(1) {
        sum += logarithm_of_step(1024 + entry as u128);
        *value = ((sum + (1 << 31)) >> 32) as u64;
    }
    table
}

/// Returns ln((n + 1) / n) in 64.64 fixed point, for n of at least 1024: the first terms of the series 2 artanh(1 / (2n + 1)).
const fn logarithm_of_step(n: u128) -> u128 {
    let m = 2 * n + 1;
    let one = 1 << 64;
    2 * (one / m + one / (3 * m.pow(3)) + one / (5 * m.pow(5)))
}

const _: () = {
    assert!(size_of::<StubHeader>() == HEADER_SIZE);
    assert!(size_of::<SiteRecord>() == RECORD_SIZE);
    assert!(HEADER_SIZE + MAX_SITES * RECORD_SIZE <= ROUTINES as usize);
    assert!(DRAWS as usize + 8 * DRAW_VALUES <= CODE_SIZE as usize);
    assert!(FILTER + FILTER_SIZE == TABLE);
    assert!(TABLE + 8 * SLOTS == DATA_SIZE);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> StubHeader {
        StubHeader {
            magic: MAGIC,
            base: 0x1122_3344_5566_7788,
            sites: 3,
            code_end: 0x1a2b,
            free_probe: 0x1010,
            tentative_probe: 0x1020,
            undo_probe: 0x1030,
            alloc_probe: 0x1000,
            checksum: 0x99aa_bbcc_ddee_ff00,
            reserved: [5, 6],
        }
    }

    fn record() -> SiteRecord {
        let mut name = [0; 64];
        name[..6].copy_from_slice(b"malloc");
        SiteRecord {
            address: 0x7f00_0001_2345,
            file_offset: 0x9_893b,
            device: 0x0801,
            inode: 77,
            entry: 0x7f00_0001_233a,
            stub: 0x1400,
            length: 7,
            is_alloc: 1,
            reserved: 0,
            original: [0x80; 16],
            jump: [0xe9, 1, 2, 3, 4],
            padding: [0; 3],
            name,
        }
    }

    #[test]
    fn fields_are_at_the_offsets_of_the_structures() {
        let bytes = header().to_bytes();
        assert_eq!(bytes[..8], *b"MTSTUB01");
        assert_eq!(bytes[8..16], 0x1122_3344_5566_7788_u64.to_le_bytes());
        assert_eq!(bytes[16..24], [3, 0, 0, 0, 0x2b, 0x1a, 0, 0]);
        assert_eq!(bytes[36..40], [0, 0x10, 0, 0]);
        assert_eq!(bytes[40..48], 0x99aa_bbcc_ddee_ff00_u64.to_le_bytes());
        assert_eq!(bytes[48..], [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        let bytes = record().to_bytes();
        assert_eq!(bytes[32..40], 0x7f00_0001_233a_u64.to_le_bytes());
        assert_eq!(bytes[40..48], [0, 0x14, 0, 0, 7, 1, 0, 0]);
        assert_eq!(bytes[64..72], [0xe9, 1, 2, 3, 4, 0, 0, 0]);
        assert_eq!(bytes[72..79], *b"malloc\0");
    }

    #[test]
    fn header_and_record_are_read_back() {
        assert_eq!(StubHeader::from_bytes(&header().to_bytes()), Some(header()));
        assert_eq!(SiteRecord::from_bytes(&record().to_bytes()), Some(record()));
        assert_eq!(record().name(), "malloc");
        assert_eq!(SiteRecord { name: [b'x'; 64], ..record() }.name(), "x".repeat(64));
    }

    #[test]
    fn damaged_headers_are_refused() {
        let full = header().to_bytes();
        for length in 0..full.len() {
            assert_eq!(StubHeader::from_bytes(&full[..length]), None, "{length}");
        }
        assert_eq!(StubHeader::from_bytes(&StubHeader { magic: *b"MTSTUB00", ..header() }.to_bytes()), None);
        assert!(StubHeader::from_bytes(&StubHeader { sites: 28, ..header() }.to_bytes()).is_some());
        assert_eq!(StubHeader::from_bytes(&StubHeader { sites: 29, ..header() }.to_bytes()), None);
        assert_eq!(SiteRecord::from_bytes(&record().to_bytes()[..135]), None);
    }

    #[test]
    fn draw_table_has_logarithms() {
        let table = draw_table();
        assert_eq!((table[0], table[1024]), (0xb172_17f8, 0));
        for (j, value) in (0_u32..).zip(table) {
            let exact = -(0.5 + f64::from(j) / 2048.0).ln();
            let error = value as f64 / 4_294_967_296.0 - exact;
            assert!(error.abs() <= 0.501 / 4_294_967_296.0, "{j}: {error:e}");
        }
    }
}
