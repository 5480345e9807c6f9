//! Heap profiles of Go programs: the executable, and the memory of a process.

#![no_main]

use std::io;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use memtrace_model::AbsAddr;
use memtrace_object::go::{GoExecutable, ProfileChanges, ProfileReader, ProfileRequest, TargetMemory};

/// An executable with symbols of the variables.
const EXECUTABLE: &[u8] = include_bytes!("../corpus/elf/go");

/// Bytes between the executable and the memory. Without them, all bytes are memory.
const BETWEEN: &[u8] = b"\0go\0memory\0";

/// Regions of memory. Each follows its address in eight bytes, and its length in two bytes.
struct Regions<'a>(Vec<(u64, &'a [u8])>);

impl<'a> Regions<'a> {
    fn parse(mut bytes: &'a [u8]) -> Self {
        let mut regions = Vec::new();
        while let Some((address, rest)) = bytes.split_first_chunk::<8>()
            && let Some((length, rest)) = rest.split_first_chunk::<2>()
        {
            let (region, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
            regions.push((u64::from_le_bytes(*address), region));
            bytes = rest;
        }
        Self(regions)
    }
}

impl TargetMemory for Regions<'_> {
    fn read_some(&self, address: AbsAddr, into: &mut [u8]) -> io::Result<usize> {
        let from = |(start, bytes): &(u64, &'_ [u8])| {
            let rest = bytes.get(usize::try_from(address.0.checked_sub(*start)?).ok()?..)?;
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            (length > 0).then_some(length)
        };
        self.0.iter().find_map(from).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.windows(BETWEEN.len()).position(|window| window == BETWEEN);
    let (file, memory) = at.map_or((EXECUTABLE, bytes), |at| (&bytes[..at], &bytes[at + BETWEEN.len()..]));
    let Ok(executable) = GoExecutable::read(file) else { return };
    let mut reader = ProfileReader::new(Arc::new(executable), 0);
    let (memory, mut changes) = (Regions::parse(memory), ProfileChanges::default());
    let _ = reader.collections(&memory);
    for known in [0, 1] {
        let request = ProfileRequest { known, most: 1000, with_unpublished: false };
        if let Ok(profile) = reader.read(&memory, file, request) {
            assert!(profile.buckets.iter().all(|bucket| bucket.frees <= bucket.allocs));
            let difference = changes.apply(&profile);
            assert!(difference.changes.len() <= profile.buckets.len());
        }
    }
});
