//! Memory of a process with a heap profile.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;

use memtrace_model::AbsAddr;

use super::fake_program::{BUCKETS, CYCLE, FakeProgram, RATE};
use crate::go::bucket_list::hash_of;
use crate::go::bucket_record::RecordLayout;
use crate::go::{GoExecutable, HeapProfile, ProfileError, ProfileReader, ProfileRequest, TargetMemory};

/// Start of the memory with the buckets. It is no multiple of the size of a block.
pub(super) const HEAP: u64 = 0x7f00_0000_3000;
const PAGE: usize = 4096;
/// Start and size of the memory with the variables.
const VARIABLES: u64 = 0x40_0000;
const VARIABLES_SIZE: u64 = 0x2_0000;

/// Change of the memory that follows a read.
type Change = Box<dyn FnMut(&mut Memory)>;

/// Regions of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Vec<(u64, Vec<u8>)>);

impl Memory {
    fn region(&self, address: u64) -> Option<(usize, usize)> {
        let inside = |(start, bytes): &(u64, Vec<u8>)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            (at < bytes.len()).then_some(at)
        };
        self.0.iter().enumerate().find_map(|(index, region)| Some((index, inside(region)?)))
    }

    /// Reads bytes. A region ends at the end of a page, with zeros.
    fn read(&self, address: u64, into: &mut [u8]) -> Option<usize> {
        let (region, at) = self.region(address)?;
        let region = &self.0[region].1;
        let length = into.len().min(region.len().next_multiple_of(PAGE) - at);
        into[..length].fill(0);
        let copied = length.min(region.len() - at);
        into[..copied].copy_from_slice(&region[at..at + copied]);
        Some(length)
    }

    pub(super) fn word(&self, address: u64) -> u64 {
        let (region, at) = self.region(address).unwrap();
        u64::from_le_bytes(self.0[region].1[at..at + 8].try_into().unwrap())
    }

    /// Sets a word, unless it is not mapped as a whole.
    pub(super) fn set_if_mapped(&mut self, address: u64, word: u64) {
        if self.region(address).is_some_and(|(region, at)| self.0[region].1.len() - at >= 8) {
            self.set(address, word);
        }
    }

    pub(super) fn set(&mut self, address: u64, word: u64) {
        let (region, at) = self.region(address).unwrap();
        self.0[region].1[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

/// A process that runs a [`FakeProgram`].
pub(super) struct FakeProcess {
    pub(super) program: FakeProgram,
    pub(super) memory: RefCell<Memory>,
    layout: RecordLayout,
    /// Address of the next bucket.
    next: u64,
    /// Number of reads, and the change after each.
    pub(super) reads: Cell<usize>,
    pub(super) change: RefCell<Change>,
}

/// Numbers of a bucket in the published profile and in the cycles 0, 1 and 2, each with allocated and freed blocks.
pub(super) type Numbers = [[u64; 2]; 4];

impl FakeProcess {
    /// Creates a process with no bucket after three collections. The last cycle is published.
    pub(super) fn new(program: FakeProgram) -> Self {
        let mut memory = Memory(vec![(VARIABLES, vec![0; VARIABLES_SIZE as usize]), (HEAP, Vec::new())]);
        memory.set(RATE, 512 << 10);
        memory.set(CYCLE, (3 << 1) | 1);
        Self {
            program,
            memory: RefCell::new(memory),
            layout: if program.minor >= 27 { RecordLayout::Counts } else { RecordLayout::CountsAndBytes },
            next: HEAP,
            reads: Cell::new(0),
            change: RefCell::new(Box::new(|_| {})),
        }
    }

    pub(super) fn reader(&self) -> ProfileReader {
        ProfileReader::new(Arc::new(GoExecutable::read(&self.program.bytes()[..]).unwrap()), 0)
    }

    pub(super) fn read(&self, reader: &mut ProfileReader, known: usize) -> Result<HeapProfile, ProfileError> {
        self.read_as(reader, ProfileRequest { known, most: usize::MAX, with_unpublished: false })
    }

    pub(super) fn read_as(
        &self,
        reader: &mut ProfileReader,
        request: ProfileRequest,
    ) -> Result<HeapProfile, ProfileError> {
        reader.read(self, &self.program.bytes()[..], request)
    }

    pub(super) fn set_cycle(&self, number: u64, is_flushed: bool) {
        self.memory.borrow_mut().set(CYCLE, (number << 1) | u64::from(is_flushed));
    }

    /// Moves the variables by `distance`, as in a position-independent program.
    pub(super) fn move_variables(&self, distance: u64) {
        self.memory.borrow_mut().0[0].0 += distance;
    }

    /// Ends the memory of the buckets after `length` bytes.
    pub(super) fn cut(&self, length: usize) {
        self.memory.borrow_mut().0[1].1.truncate(length);
    }

    /// Adds a bucket at the front of the list. Returns its address.
    pub(super) fn add(&mut self, stack: &[u64], size: u64, numbers: Numbers) -> u64 {
        let address = self.next;
        let mut memory = self.memory.borrow_mut();
        let newest = memory.word(BUCKETS);
        let mut words = vec![0, newest, 1, hash_of(stack, size), size, stack.len() as u64];
        words.extend(stack);
        words.extend(self.layout_of(size, numbers));
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        memory.0[1].1.extend(bytes);
        memory.set(BUCKETS, address);
        drop(memory);
        self.next = address + 8 * words.len() as u64;
        address
    }

    fn layout_of(&self, size: u64, numbers: Numbers) -> Vec<u64> {
        let has_bytes = self.layout == RecordLayout::CountsAndBytes;
        let cycle = |[allocs, frees]: [u64; 2]| {
            let bytes = [allocs * size, frees * size];
            [allocs, frees].into_iter().chain(bytes.into_iter().filter(move |_| has_bytes))
        };
        numbers.into_iter().flat_map(cycle).collect()
    }

    /// Replaces the numbers of the bucket at `address`, which has a stack of `depth` frames.
    pub(super) fn set_numbers(&self, address: u64, depth: u64, size: u64, numbers: Numbers) {
        let mut memory = self.memory.borrow_mut();
        for (index, word) in (0..).zip(self.layout_of(size, numbers)) {
            memory.set(address + 8 * (6 + depth + index), word);
        }
    }
}

impl TargetMemory for FakeProcess {
    fn read_some(&self, address: AbsAddr, into: &mut [u8]) -> io::Result<usize> {
        let length = self.memory.borrow().read(address.0, into).ok_or(io::ErrorKind::InvalidInput)?;
        self.reads.set(self.reads.get() + 1);
        let mut change = self.change.borrow_mut();
        change(&mut self.memory.borrow_mut());
        Ok(length)
    }
}
