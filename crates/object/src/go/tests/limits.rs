//! Limits of time and memory, and readings of programs that change while they are read.

use std::cell::Cell;
use std::io;

use memtrace_model::{Bytes, SampleSum};

use super::fake_process::FakeProcess;
use super::fake_program::{CYCLE, FakeProgram, MAIN, RATE};
use crate::elf::{Elf, ElfError, Source};
use crate::go::{
    GoExecutable, GoFunctions, GoRefusal, ProfileChanges, ProfileError, ProfileRequest, TotalsLocation, TotalsRefusal,
};

const PROGRAM: FakeProgram = FakeProgram::new("go1.26.6", 26);
/// First words of the table of functions: the magic number, the size of an instruction and the size of a pointer.
const MAGIC: [u8; 8] = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
/// Offset of the first program header, and size of a program header in bytes.
const HEADER: usize = 64;
const HEADER_SIZE: usize = 56;
/// Offset of `p_filesz` in a program header.
const FILE_SIZE: usize = 32;

/// A file that ends with zeros which are stored nowhere.
struct SparseFile {
    bytes: Vec<u8>,
    size: u64,
    /// Number of reads so far, and their maximum.
    reads: Cell<usize>,
    most: usize,
}

impl Source for &SparseFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.reads.set(self.reads.get() + 1);
        if self.reads.get() > self.most {
            return Err(io::Error::other("too many reads"));
        }
        let start = usize::try_from(offset).unwrap().min(self.bytes.len());
        let stored = &self.bytes[start..self.bytes.len().min(start + into.len())];
        into.fill(0);
        into[..stored.len()].copy_from_slice(stored);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}

/// Returns a program with this number of segments, which all contain the whole file.
fn overlapping(segments: u16) -> SparseFile {
    const SIZE: u64 = 1 << 32;
    let mut bytes = PROGRAM.bytes();
    let mut load = bytes[HEADER..HEADER + HEADER_SIZE].to_vec();
    load[FILE_SIZE..FILE_SIZE + 8].copy_from_slice(&SIZE.to_le_bytes());
    let note = bytes[HEADER + HEADER_SIZE..HEADER + 2 * HEADER_SIZE].to_vec();
    // e_phoff and e_phnum.
    let headers = bytes.len() as u64;
    bytes[32..40].copy_from_slice(&headers.to_le_bytes());
    bytes[56..58].copy_from_slice(&(segments + 1).to_le_bytes());
    bytes.extend((0..segments).flat_map(|_| load.clone()));
    bytes.extend(note);
    SparseFile { bytes, size: SIZE, reads: Cell::new(0), most: 1000 }
}

#[test]
fn programs_with_too_many_bytes_are_refused() {
    let is_too_large =
        |error: &ElfError| matches!(error, ElfError::Malformed(text) if *text == "its segments are too large");
    for segments in [2, 1000] {
        let file = overlapping(segments);
        let refusal = GoExecutable::read(&file).unwrap_err();
        assert!(matches!(&refusal, GoRefusal::Elf(error) if is_too_large(error)), "{refusal}");
        let elf = Elf::parse(&file).unwrap();
        assert!(GoFunctions::find(&elf).is_none());
        if cfg!(target_arch = "x86_64") {
            let refusal = TotalsLocation::find(&file).unwrap_err();
            assert!(matches!(&refusal, TotalsRefusal::Elf(error) if is_too_large(error)), "{refusal}");
        }
        assert!(file.reads.get() < 50, "{} reads", file.reads.get());
    }
}

#[test]
fn few_forged_headers_are_examined() {
    const SIZE: usize = 4 << 20;
    let mut bytes = FakeProgram { has_sections: false, ..PROGRAM }.bytes();
    let table = bytes.windows(8).position(|window| window == MAGIC).unwrap();
    bytes[table] = 0;
    let start = bytes.len().next_multiple_of(8);
    bytes.resize(start, 0);
    while bytes.len() < SIZE {
        bytes.extend(MAGIC);
    }
    bytes[HEADER + FILE_SIZE..HEADER + FILE_SIZE + 8].copy_from_slice(&(SIZE as u64).to_le_bytes());
    let file = SparseFile { bytes, size: SIZE as u64, reads: Cell::new(0), most: usize::MAX };
    let elf = Elf::parse(&file).unwrap();
    assert!(GoFunctions::find(&elf).is_none());
    // There are 520,000 of them.
    assert!((65_536..65_600).contains(&file.reads.get()), "{} reads", file.reads.get());
}

#[test]
fn buckets_are_limited_before_they_are_kept() {
    let mut process = FakeProcess::new(PROGRAM);
    for size in 1..=5 {
        process.add(&[MAIN + 4], 8 * size, [[1, 0], [0; 2], [0; 2], [0; 2]]);
    }
    let mut reader = process.reader();
    let request = |known, most| ProfileRequest { known, most, with_unpublished: false };
    let error = process.read_as(&mut reader, request(0, 4)).unwrap_err();
    assert!(matches!(error, ProfileError::TooManyBuckets(4)), "{error}");
    assert_eq!(process.read_as(&mut reader, request(0, 5)).unwrap().buckets.len(), 5);
    // The known buckets count.
    process.add(&[MAIN + 8], 64, [[1, 0], [0; 2], [0; 2], [0; 2]]);
    let error = process.read_as(&mut reader, request(5, 5)).unwrap_err();
    assert!(matches!(error, ProfileError::TooManyBuckets(5)), "{error}");
    assert_eq!(process.read_as(&mut reader, request(5, 6)).unwrap().buckets.len(), 6);
}

#[test]
fn frames_are_limited_by_the_number_of_buckets() {
    let mut process = FakeProcess::new(PROGRAM);
    let stack = [MAIN + 4; 1024];
    for size in 1..=65 {
        process.add(&stack, 8 * size, [[1, 0], [0; 2], [0; 2], [0; 2]]);
    }
    let read =
        |most| process.read_as(&mut process.reader(), ProfileRequest { known: 0, most, with_unpublished: false });
    assert!(matches!(read(100), Err(ProfileError::TooManyFrames(65_536))));
    assert_eq!(read(2000).unwrap().buckets.len(), 65);
}

#[test]
fn program_that_stops_to_sample_still_has_its_samples() {
    let mut process = FakeProcess::new(PROGRAM);
    let address = process.add(&[MAIN + 4], 64, [[10, 4], [0; 2], [0; 2], [0; 2]]);
    let mut reader = process.reader();
    process.read(&mut reader, 0).unwrap();
    process.memory.borrow_mut().set(RATE, 0);
    process.set_numbers(address, 1, 64, [[10, 9], [0; 2], [0; 2], [0; 2]]);
    let profile = process.read(&mut reader, 1).unwrap();
    assert_eq!((profile.rate, profile.buckets[0].frees), (Bytes(512 << 10), 9));
    assert!(matches!(process.read(&mut process.reader(), 0), Err(ProfileError::RateIsZero)));
}

#[test]
fn collections_during_a_reading_tear_no_bucket() {
    for changes in 0..60 {
        let mut process = FakeProcess::new(PROGRAM);
        for size in 1..=3 {
            process.add(&[MAIN + 4], 8 * size, [[10, 4], [0; 2], [0; 2], [0; 2]]);
        }
        let mut left = changes;
        *process.change.borrow_mut() = Box::new(move |memory| {
            if left > 0 {
                left -= 1;
                let cycle = memory.word(CYCLE);
                memory.set(CYCLE, cycle + 2);
            }
        });
        let profile = process.read(&mut process.reader(), 0).unwrap();
        assert_eq!(profile.changed, 0, "{changes} collections");
    }
}

#[test]
fn inherited_blocks_are_no_changes() {
    let mut process = FakeProcess::new(PROGRAM);
    process.set_cycle(3, true);
    // 10 allocated and 4 freed blocks, of which the last cycles are not published.
    let first = process.add(&[MAIN + 4], 64, [[6, 2], [1, 0], [1, 1], [2, 1]]);
    let (mut reader, mut changes) = (process.reader(), ProfileChanges::default());
    let request = ProfileRequest { known: 0, most: 100, with_unpublished: true };
    let profile = process.read_as(&mut reader, request).unwrap();
    assert_eq!((profile.buckets[0].allocs, profile.buckets[0].frees, profile.is_published), (10, 4, false));
    changes.inherit(&profile);

    // All of them are published, and 3 more. Of 6 inherited live blocks, 5 were freed.
    process.add(&[MAIN + 8], 64, [[2, 1], [0; 2], [0; 2], [0; 2]]);
    let sum = |samples, bucket| SampleSum::of_poisson(samples, Bytes(64), Bytes(512 << 10), bucket);
    let mut apply = |numbers: [u64; 2]| {
        process.set_numbers(first, 1, 64, [numbers, [0; 2], [0; 2], [0; 2]]);
        let difference = changes.apply(&process.read(&mut reader, 2).unwrap());
        assert_eq!(difference.decreased, 0);
        difference.changes.into_iter().map(|change| (change.bucket, change.alloc, change.free)).collect::<Vec<_>>()
    };
    // Fewer are published than were read.
    assert_eq!(apply([8, 3]), [(1, sum(2, 1), sum(1, 1))]);
    assert_eq!(apply([13, 9]), [(0, sum(3, 0), sum(0, 0))]);
    // The seventh free is one of the own blocks.
    assert_eq!(apply([13, 11]), [(0, sum(0, 0), sum(1, 0))]);
}
