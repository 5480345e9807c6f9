//! Sites of a stub: comparison of the code in memory with the records, and its change.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use memtrace_object::overlay::layout::{DRAWS, MAX_SITES, ROUTINES, SiteRecord, StubHeader};

use super::fault::{self, FaultPoint};
use super::maps;
use crate::patcher::refusal::PatchRefusal;
use crate::procfs::MapsEntry;

/// Size of a page.
const PAGE: u64 = 4096;
/// Opcode of a jump with a 32-bit distance.
const JUMP: u8 = 0xe9;
/// Opcode of a breakpoint.
const BREAKPOINT: u8 = 0xcc;
/// Length of a jump.
const JUMP_LENGTH: u64 = 5;
/// End of the addresses of a process (`TASK_SIZE_MAX` with four levels of page tables).
const ADDRESSES: u64 = 1 << 47;
/// Text for a site that cannot be read.
const UNMAPPED: &str = "it is not mapped any more";

/// Sites of a stub.
#[derive(Debug)]
pub(super) struct PatchSites {
    records: Vec<SiteRecord>,
    /// Encoded header and records.
    bytes: Vec<u8>,
}

/// Code of a site in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SiteCode {
    Original,
    /// The jump to the stub.
    Jump,
    /// Neither of them.
    Other(Vec<u8>),
    Unreadable,
}

impl PatchSites {
    /// Reads the header and the records of a stub at `base`. The process can have written anything there.
    pub(super) fn parse(bytes: &[u8], base: u64) -> Result<Self, PatchRefusal> {
        let header = StubHeader::from_bytes(bytes).filter(|header| header.base == base);
        let header = header.ok_or(PatchRefusal::OtherVersion)?;
        let count = usize::try_from(header.sites).unwrap_or(usize::MAX).min(MAX_SITES);
        let length = size_of::<StubHeader>() + count * size_of::<SiteRecord>();
        let bytes = bytes.get(..length).ok_or(PatchRefusal::OtherVersion)?;
        let records = bytes.get(size_of::<StubHeader>()..).unwrap_or_default().chunks_exact(size_of::<SiteRecord>());
        let records: Vec<_> = records.filter_map(SiteRecord::from_bytes).collect();
        if records.len() != count || !records.iter().all(|record| is_valid(record, base)) {
            return Err(PatchRefusal::OtherVersion);
        }
        Ok(Self { records, bytes: bytes.to_vec() })
    }

    /// Returns true if the memory of the process has this stub.
    pub(super) fn are_in(&self, memory: &File, base: u64) -> bool {
        let mut bytes = vec![0; self.bytes.len()];
        memory.read_exact_at(&mut bytes, base).is_ok() && bytes == self.bytes
    }

    /// Compares the code of all sites with their records.
    pub(super) fn compare(&self, memory: &File) -> Result<(), PatchRefusal> {
        self.records.iter().try_for_each(|record| match code_of(record, memory) {
            SiteCode::Original | SiteCode::Jump => Ok(()),
            SiteCode::Other(bytes) => Err(foreign(record, &hexadecimal(&bytes))),
            SiteCode::Unreadable => Err(foreign(record, UNMAPPED)),
        })
    }

    /// Compares the mappings at all sites with the objects of their records.
    pub(super) fn check_objects(&self, mappings: &[MapsEntry]) -> Result<(), PatchRefusal> {
        match self.records.iter().find(|record| !is_in_object(record, mappings)) {
            None => Ok(()),
            Some(record) => Err(foreign(record, UNMAPPED)),
        }
    }

    /// Returns true if an instruction pointer is inside of an instruction that is replaced.
    pub(super) fn contain(&self, rip: u64) -> bool {
        self.records.iter().any(|record| (1..JUMP_LENGTH).contains(&rip.wrapping_sub(record.address)))
    }

    /// Writes the jumps: first into functions that free, so that no sampled block can be freed unseen. After an error,
    /// the original code is there again. All threads must have stopped.
    pub(super) fn write_jumps(&self, memory: &File) -> Result<(), PatchRefusal> {
        self.compare(memory)?;
        let mut written: Vec<&SiteRecord> = Vec::with_capacity(self.records.len());
        for record in self.frees().chain(self.allocations()) {
            if code_of(record, memory) == SiteCode::Jump {
                continue;
            }
            written.push(record);
            if let Err(error) = write(memory, record.address, &record.jump) {
                for record in written.into_iter().rev() {
                    let restored = write(memory, record.address, original(record));
                    log::debug!("the original code of {} is back: {restored:?}", record.name());
                }
                return Err(write_refusal(&error));
            }
            fault::point(FaultPoint::SiteWritten);
        }
        Ok(())
    }

    /// Writes the original code: first into functions that allocate. Leaves other code alone. Returns a refusal for the
    /// first site that is not restored. `mappings`: memory map of the process, if it is known. All threads must have
    /// stopped.
    pub(super) fn restore(&self, memory: &File, mappings: Option<&[MapsEntry]>) -> Option<PatchRefusal> {
        let mut refusal = None;
        for record in self.allocations().chain(self.frees()) {
            let restored = restore(record, memory, mappings);
            fault::point(FaultPoint::SiteRestored);
            if let Err(error) = restored {
                refusal.get_or_insert(error);
            }
        }
        refusal
    }

    fn frees(&self) -> impl Iterator<Item = &SiteRecord> {
        self.records.iter().filter(|record| record.is_alloc == 0)
    }

    fn allocations(&self) -> impl Iterator<Item = &SiteRecord> {
        self.records.iter().filter(|record| record.is_alloc != 0)
    }
}

/// Returns true if a record describes a jump to the stub at `base`, in one page.
fn is_valid(record: &SiteRecord, base: u64) -> bool {
    let SiteRecord { address, length, stub, jump: [opcode, distance @ ..], .. } = *record;
    let (length, stub) = (u64::from(length), u64::from(stub));
    let target = address.wrapping_add(JUMP_LENGTH).wrapping_add_signed(i32::from_le_bytes(distance).into());
    (JUMP_LENGTH..=record.original.len() as u64).contains(&length)
        && address < ADDRESSES
        && address % PAGE + length <= PAGE
        && (ROUTINES..DRAWS).contains(&stub)
        && opcode == JUMP
        && target == base.wrapping_add(stub)
}

/// Returns true if the object of a site is still mapped at its address.
fn is_in_object(record: &SiteRecord, mappings: &[MapsEntry]) -> bool {
    maps::is_mapped(mappings, record.address, (record.device, record.inode, record.file_offset))
}

/// Returns the replaced instruction.
fn instruction(record: &SiteRecord) -> &[u8] {
    record.original.get(..usize::from(record.length)).unwrap_or(&record.original)
}

/// Returns the bytes of the replaced instruction that the jump overwrites.
fn original(record: &SiteRecord) -> &[u8] {
    &record.original[..JUMP_LENGTH as usize]
}

/// Compares the whole instruction, not only its first bytes, which the jump replaces.
fn code_of(record: &SiteRecord, memory: &File) -> SiteCode {
    let instruction = instruction(record);
    let mut code = vec![0; instruction.len()];
    if memory.read_exact_at(&mut code, record.address).is_err() {
        return SiteCode::Unreadable;
    }
    if code == instruction {
        return SiteCode::Original;
    }
    match code.split_at_checked(record.jump.len()) {
        Some((start, end)) if start == record.jump && instruction.ends_with(end) => SiteCode::Jump,
        _ => SiteCode::Other(code),
    }
}

fn restore(record: &SiteRecord, memory: &File, mappings: Option<&[MapsEntry]>) -> Result<(), PatchRefusal> {
    if mappings.is_some_and(|mappings| !is_in_object(record, mappings)) {
        return Err(foreign(record, UNMAPPED));
    }
    match code_of(record, memory) {
        SiteCode::Original => Ok(()),
        SiteCode::Jump => write(memory, record.address, original(record)).map_err(|error| write_refusal(&error)),
        SiteCode::Other(bytes) => {
            let (start, repair) = repair_of(record, &bytes).ok_or_else(|| foreign(record, &hexadecimal(&bytes)))?;
            write(memory, record.address.saturating_add(start), repair).map_err(|error| write_refusal(&error))
        }
        SiteCode::Unreadable => Err(foreign(record, UNMAPPED)),
    }
}

/// Returns the original bytes that repair a jump with another first byte, and their offset from the site.
///
/// A uprobe replaces the first byte by a breakpoint. When it is removed, the kernel writes the first byte of the file
/// (`uprobe_write_opcode`, kernel/events/uprobes.c), which begins another instruction together with the rest of the jump. If the
/// breakpoint is still there, it is kept: its removal then completes the original instruction.
fn repair_of<'record>(record: &'record SiteRecord, code: &[u8]) -> Option<(u64, &'record [u8])> {
    let (first, rest) = code.split_first()?;
    let (jump, end) = rest.split_at_checked(record.jump.len() - 1)?;
    if jump != &record.jump[1..] || !instruction(record).ends_with(end) {
        return None;
    }
    match *first {
        BREAKPOINT => Some((1, &original(record)[1..])),
        first if first == record.original[0] => Some((0, original(record))),
        _ => None,
    }
}

/// Writes code, and reads it back. The kernel writes to a private copy of the page.
fn write(memory: &File, address: u64, code: &[u8]) -> io::Result<()> {
    memory.write_all_at(code, address)?;
    let mut written = vec![0; code.len()];
    memory.read_exact_at(&mut written, address)?;
    if written == code { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Returns the refusal for code that cannot be written. The kernel returns EIO for memory that is not writable if
/// `proc_mem.force_override` forbids such writes (`proc_mem_foll_force`, fs/proc/base.c).
fn write_refusal(error: &io::Error) -> PatchRefusal {
    match error.raw_os_error() {
        Some(libc::EIO) => PatchRefusal::MemForce,
        Some(errno) => PatchRefusal::MapDenied(errno),
        None => PatchRefusal::Exiting,
    }
}

fn foreign(record: &SiteRecord, bytes: &str) -> PatchRefusal {
    PatchRefusal::Foreign { function: record.name(), bytes: bytes.to_owned() }
}

/// Formats bytes of code.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use memtrace_object::overlay::layout::MAGIC;
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;
    const STUB: u32 = 0x1400;
    /// `cmpb $0,0x141b46(%rip)`, as in malloc of glibc 2.36.
    const CMPB: [u8; 7] = [0x80, 0x3d, 0x46, 0x1b, 0x14, 0x00, 0x00];

    /// Returns a file whose offsets are the addresses of a process.
    fn memory() -> File {
        File::from(memfd_create("memory", MemfdFlags::CLOEXEC).unwrap())
    }

    fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
        std::array::from_fn(|index| bytes.get(index).copied().unwrap_or_default())
    }

    fn record(address: u64, is_alloc: u8, name: &str) -> SiteRecord {
        let distance = (BASE + u64::from(STUB)).wrapping_sub(address + 5) as u32;
        SiteRecord {
            address,
            file_offset: address,
            device: 1,
            inode: 2,
            entry: address - 11,
            stub: STUB,
            length: 7,
            is_alloc,
            reserved: 0,
            original: padded(&CMPB),
            jump: padded(&[[0xe9].as_slice(), &distance.to_le_bytes()].concat()),
            padding: [0; 3],
            name: padded(name.as_bytes()),
        }
    }

    fn encoded(records: &[SiteRecord]) -> Vec<u8> {
        let header = StubHeader {
            magic: MAGIC,
            base: BASE,
            sites: records.len() as u32,
            code_end: 0x2000,
            free_probe: 0,
            tentative_probe: 0,
            undo_probe: 0,
            alloc_probe: 0,
            checksum: 0,
            reserved: [0; 2],
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(records.iter().flat_map(SiteRecord::to_bytes));
        bytes
    }

    fn near(offset: u64) -> u64 {
        BASE + 0x10_0000 + offset
    }

    fn code_at(memory: &File, address: u64) -> [u8; 7] {
        let mut code = [0; 7];
        memory.read_exact_at(&mut code, address).unwrap();
        code
    }

    #[test]
    fn jumps_are_written_and_the_original_code_is_restored() {
        let records = [record(near(0), 1, "malloc"), record(near(64), 0, "free")];
        let sites = PatchSites::parse(&encoded(&records), BASE).unwrap();
        let memory = memory();
        for record in &records {
            memory.write_all_at(&CMPB, record.address).unwrap();
        }
        sites.compare(&memory).unwrap();
        sites.write_jumps(&memory).unwrap();
        for record in &records {
            let expected: [u8; 7] = padded(&[record.jump.as_slice(), &[0, 0]].concat());
            assert_eq!(code_at(&memory, record.address), expected, "the end of the instruction stays");
        }
        sites.compare(&memory).unwrap();
        sites.write_jumps(&memory).unwrap();
        assert_eq!(sites.restore(&memory, None), None);
        assert!(records.iter().all(|record| code_at(&memory, record.address) == CMPB));
        assert_eq!(sites.restore(&memory, None), None, "it is restored already");
    }

    #[test]
    fn foreign_code_is_left_alone() {
        let records = [record(near(0), 1, "malloc"), record(near(64), 0, "free")];
        let sites = PatchSites::parse(&encoded(&records), BASE).unwrap();
        let memory = memory();
        let breakpoint = [0xcc, 0x3d, 0x46, 0x1b, 0x14, 0x00, 0x00];
        memory.write_all_at(&CMPB, near(64)).unwrap();
        memory.write_all_at(&breakpoint, near(0)).unwrap();
        let expected = PatchRefusal::Foreign { function: "malloc".into(), bytes: "cc 3d 46 1b 14 00 00".into() };
        assert_eq!(sites.compare(&memory), Err(expected.clone()));
        assert_eq!(sites.write_jumps(&memory), Err(expected.clone()));
        assert_eq!(code_at(&memory, near(64)), CMPB, "nothing is written");
        let jump: [u8; 7] = padded(&[records[1].jump.as_slice(), &[0, 0]].concat());
        memory.write_all_at(&jump, near(64)).unwrap();
        assert_eq!(sites.restore(&memory, None), Some(expected), "the other site is restored");
        assert_eq!((code_at(&memory, near(0)), code_at(&memory, near(64))), (breakpoint, CMPB));
        // The jump with another end is another patch.
        memory.write_all_at(&[jump[0], jump[1], jump[2], jump[3], jump[4], 1, 0], near(64)).unwrap();
        assert!(sites.restore(&memory, None).is_some());
        assert_eq!(code_at(&memory, near(64))[..5], jump[..5]);
    }

    #[test]
    fn jump_that_a_uprobe_has_damaged_is_repaired() {
        let records = [record(near(0), 1, "malloc")];
        let sites = PatchSites::parse(&encoded(&records), BASE).unwrap();
        let memory = memory();
        let with_first =
            |first: u8| -> [u8; 7] { padded(&[[first].as_slice(), &records[0].jump[1..], &[0, 0]].concat()) };
        // The uprobe was removed.
        memory.write_all_at(&with_first(0x80), near(0)).unwrap();
        assert!(sites.compare(&memory).is_err());
        assert_eq!((sites.restore(&memory, None), code_at(&memory, near(0))), (None, CMPB));
        // It is still there.
        memory.write_all_at(&with_first(0xcc), near(0)).unwrap();
        let probed = [0xcc, 0x3d, 0x46, 0x1b, 0x14, 0x00, 0x00];
        assert_eq!((sites.restore(&memory, None), code_at(&memory, near(0))), (None, probed));
        memory.write_all_at(&with_first(0x90), near(0)).unwrap();
        assert!(sites.restore(&memory, None).is_some());
        assert_eq!(code_at(&memory, near(0)), with_first(0x90));
    }

    #[test]
    fn other_object_at_the_address_is_left_alone() {
        let records = [record(near(0), 1, "malloc")];
        let sites = PatchSites::parse(&encoded(&records), BASE).unwrap();
        let memory = memory();
        let jump: [u8; 7] = padded(&[records[0].jump.as_slice(), &[0, 0]].concat());
        memory.write_all_at(&jump, near(0)).unwrap();
        let unmapped = PatchRefusal::Foreign { function: "malloc".into(), bytes: UNMAPPED.into() };
        let line = |inode: u64| format!("7f0000000000-7f0000200000 r-xp 7f0000000000 00:01 {inode}    /lib/libc.so.6");
        let mapped = |inode| [MapsEntry::parse(line(inode).as_bytes()).unwrap()];
        assert_eq!(sites.check_objects(&mapped(2)), Ok(()));
        assert_eq!(sites.check_objects(&mapped(3)), Err(unmapped.clone()));
        assert_eq!(sites.restore(&memory, Some(&[])), Some(unmapped.clone()));
        assert_eq!(code_at(&memory, near(0)), jump);
        memory.set_len(0).unwrap();
        assert_eq!(sites.restore(&memory, None), Some(unmapped));
    }

    #[test]
    fn stub_of_the_process_is_compared() {
        let bytes = encoded(&[record(near(0), 1, "malloc")]);
        let sites = PatchSites::parse(&bytes, BASE).unwrap();
        let memory = memory();
        assert!(!sites.are_in(&memory, BASE));
        memory.write_all_at(&bytes, BASE).unwrap();
        assert!(sites.are_in(&memory, BASE));
        memory.write_all_at(&[9], BASE + 70).unwrap();
        assert!(!sites.are_in(&memory, BASE));
    }

    #[test]
    fn only_the_inside_of_a_jump_is_unsafe() {
        let sites = PatchSites::parse(&encoded(&[record(near(0), 1, "malloc")]), BASE).unwrap();
        let inside: Vec<_> = (0..10).filter(|offset| sites.contain(near(*offset))).collect();
        assert_eq!(inside, [1, 2, 3, 4]);
        assert!(!sites.contain(near(0) - 1));
    }

    #[test]
    fn hostile_records_are_refused() {
        let good = record(near(0), 1, "malloc");
        assert!(PatchSites::parse(&encoded(&[good]), BASE).is_ok());
        let refused = |record: SiteRecord| PatchSites::parse(&encoded(&[record]), BASE).is_err();
        assert!(refused(SiteRecord { length: 4, ..good }));
        assert!(refused(SiteRecord { length: 17, ..good }));
        assert!(refused(SiteRecord { stub: 0x800, ..good }));
        assert!(refused(SiteRecord { address: near(16), ..good }), "a jump to elsewhere");
        assert!(refused(SiteRecord { jump: [0xe8, 1, 2, 3, 4], ..good }));
        assert!(refused(record(near(4090), 1, "malloc")), "two pages");
        assert!(refused(SiteRecord { address: u64::MAX, ..good }));
        let bytes = encoded(&[good, good]);
        for length in 0..bytes.len() {
            assert!(PatchSites::parse(&bytes[..length], BASE).is_err(), "{length}");
        }
        assert!(PatchSites::parse(&bytes, BASE + 4096).is_err());
    }
}
