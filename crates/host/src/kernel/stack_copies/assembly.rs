//! Assembly of stack copies from their records.

use std::collections::HashMap;
use std::mem::offset_of;
use std::time::Duration;

use memtrace_common::wire::{
    CopyEnd, CopyPiece, MAX_FRAMES, MAX_PIECES, PIECE_BYTES, RecordKind, StackRecord, copy_kind,
};
use memtrace_model::{Pid, StackId};

use crate::kernel::wire_type;

/// Maximum number of incomplete copies. Each thread that is copying has one. A copy stays incomplete if its end did not
/// fit into the ring.
const MAX_OPEN: usize = 1024;

/// Approximate maximum size of the stacks of incomplete copies, in bytes: 64 stacks of [`MAX_PIECES`] pieces.
const MAX_OPEN_BYTES: usize = 2 << 20;

/// A copy that is older than this time cannot become complete: a thread writes all records of a copy in one go.
const COPY_TIME: Duration = Duration::from_millis(100);

/// Maximum length of a copy in bytes: all pieces, each after an omitted page of 4 KiB.
const MAX_BYTES: usize = MAX_PIECES as usize * (PIECE_BYTES as usize + (4 << 10));

/// A user stack, with the state of the walk that was cut.
#[derive(Clone, Debug)]
pub struct StackCopy {
    /// Time of the walk since tick 0.
    pub taken: Duration,
    pub(super) end: CopyEnd,
    /// Frames that the walk has found, the leaf first.
    pub(super) frames: Vec<u64>,
    /// Address of the first byte of `bytes`.
    pub(super) begin: u64,
    /// Contents of the stack. Omitted pages are filled with zeros.
    pub(super) bytes: Vec<u8>,
}

impl StackCopy {
    /// Returns the stack id in the recorded events.
    #[must_use]
    pub const fn id(&self) -> StackId {
        StackId(self.end.stack)
    }

    /// Returns the id of the cut stack.
    #[must_use]
    pub const fn cut(&self) -> StackId {
        StackId(self.end.cut)
    }

    /// Returns the process.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        Pid(self.end.pid)
    }

    /// Returns the memory that the copy takes, in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        size_of::<Self>() + self.frames.capacity() * size_of::<u64>() + self.bytes.capacity()
    }
}

#[derive(Debug)]
struct Open {
    taken: Duration,
    frames: Vec<u64>,
    begin: u64,
    bytes: Vec<u8>,
}

/// Incomplete copies.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// Copies by id.
    open: HashMap<u64, Open>,
    /// Size of the stacks in `open`, in bytes.
    bytes: usize,
}

impl Assembly {
    /// Adds a record. Returns the copy that it completes.
    pub(super) fn add(&mut self, record: &[u8]) -> Option<StackCopy> {
        match wire_type::read::<u32>(record)? {
            copy_kind::PIECE => self.add_piece(record)?,
            copy_kind::END => return self.finish(wire_type::read(record)?),
            kind if kind == RecordKind::Stack as u32 => self.open(record)?,
            _ => {}
        }
        None
    }

    fn open(&mut self, record: &[u8]) -> Option<()> {
        let StackRecord { stack, frames, taken, .. } = wire_type::read(record)?;
        let words = record.get(size_of::<StackRecord>()..)?.as_chunks::<8>().0;
        let frames = words.get(..usize::try_from(frames).ok()?.min(MAX_FRAMES))?;
        let frames = frames.iter().map(|&word| u64::from_ne_bytes(word)).collect();
        let taken = Duration::from_nanos(taken);
        if self.open.len() >= MAX_OPEN || self.bytes >= MAX_OPEN_BYTES {
            self.remove_old(taken);
        }
        let replaced = self.open.insert(stack, Open { taken, frames, begin: 0, bytes: Vec::new() });
        self.bytes -= replaced.map_or(0, |open| open.bytes.len());
        Some(())
    }

    /// Removes the copies that are older than [`COPY_TIME`] at `now`, or all copies if none is older.
    fn remove_old(&mut self, now: Duration) {
        let before = self.open.len();
        self.open.retain(|_, open| now.saturating_sub(open.taken) <= COPY_TIME);
        if self.open.len() == before {
            self.open.clear();
        }
        self.bytes = self.open.values().map(|open| open.bytes.len()).sum();
    }

    fn add_piece(&mut self, record: &[u8]) -> Option<()> {
        let CopyPiece { stack, address, .. } = wire_type::read(record)?;
        let words = record.get(offset_of!(CopyPiece, words)..size_of::<CopyPiece>())?;
        let open = self.open.get_mut(&stack)?;
        if open.bytes.is_empty() {
            open.begin = address;
        }
        let before = open.bytes.len();
        // The records omit pages of the stack that were never written. No walk reads them.
        let at = usize::try_from(address.checked_sub(open.begin)?).ok()?;
        if open.bytes.len() <= at && at <= MAX_BYTES - words.len() {
            open.bytes.resize(at, 0);
            open.bytes.extend_from_slice(words);
        }
        self.bytes += open.bytes.len() - before;
        Some(())
    }

    fn finish(&mut self, end: CopyEnd) -> Option<StackCopy> {
        let Open { taken, frames, begin, mut bytes } = self.open.remove(&end.stack)?;
        self.bytes -= bytes.len();
        bytes.shrink_to_fit();
        Some(StackCopy { taken, end, frames, begin, bytes })
    }
}

#[cfg(test)]
mod tests {
    use memtrace_common::wire::PIECE_WORDS;

    use super::*;

    /// Returns a record of 32-bit words, followed by 64-bit words.
    fn record(words: &[u32], values: &[u64]) -> Vec<u8> {
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        words.chain(values.iter().flat_map(|value| value.to_ne_bytes())).collect()
    }

    /// Adds the first records of the copy `id`, which was begun at `taken`: its frames and `pieces` pieces.
    fn begin(assembly: &mut Assembly, id: u64, taken: Duration, pieces: u32) {
        let mut open = record(&[RecordKind::Stack as u32, 12, 11, 7], &[id]);
        open.extend(record(&[1, 0], &[taken.as_nanos() as u64, 0x10]));
        assert_eq!(assembly.add(&open).map(|copy| copy.id()), None);
        for number in 0..u64::from(pieces) {
            let mut piece = vec![id, 0x7000 + number * PIECE_BYTES];
            piece.extend([0; PIECE_WORDS]);
            assert_eq!(assembly.add(&record(&[copy_kind::PIECE, 0], &piece)).map(|copy| copy.id()), None);
        }
    }

    /// Adds the end of the copy `id`. Returns true if it completes the copy.
    fn end(assembly: &mut Assembly, id: u64) -> bool {
        let mut end = record(&[copy_kind::END, 8], &[id]);
        end.resize(size_of::<CopyEnd>(), 0);
        assembly.add(&end).is_some_and(|copy| copy.bytes.len() == PIECE_BYTES as usize)
    }

    #[test]
    fn old_incomplete_copies_are_removed_at_the_limit() {
        let mut assembly = Assembly::default();
        for id in 0..MAX_OPEN as u64 {
            begin(&mut assembly, id, Duration::ZERO, 1);
        }
        assert_eq!(assembly.bytes, MAX_OPEN * PIECE_BYTES as usize);
        let later = COPY_TIME * 2;
        begin(&mut assembly, 5000, later, 1);
        begin(&mut assembly, 5001, later, 1);
        assert_eq!((assembly.open.len(), assembly.bytes), (2, 2 * PIECE_BYTES as usize));
        assert!(end(&mut assembly, 5000) && end(&mut assembly, 5001) && !end(&mut assembly, 3));
        assert_eq!((assembly.open.len(), assembly.bytes), (0, 0));
    }

    #[test]
    fn stacks_of_incomplete_copies_are_limited() {
        let mut assembly = Assembly::default();
        for id in 0..200 {
            begin(&mut assembly, id, Duration::ZERO, MAX_PIECES);
            assert!(assembly.bytes < MAX_OPEN_BYTES + MAX_PIECES as usize * PIECE_BYTES as usize);
        }
        assert!(assembly.open.contains_key(&199));
    }
}
