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
/// fit into the ring. At the limit, all incomplete copies are removed.
const MAX_OPEN: usize = 1024;

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

/// Incomplete copies, by id.
#[derive(Debug, Default)]
pub(super) struct Assembly(HashMap<u64, Open>);

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
        if self.0.len() >= MAX_OPEN {
            self.0.clear();
        }
        let frames = frames.iter().map(|&word| u64::from_ne_bytes(word)).collect();
        let taken = Duration::from_nanos(taken);
        self.0.insert(stack, Open { taken, frames, begin: 0, bytes: Vec::new() });
        Some(())
    }

    fn add_piece(&mut self, record: &[u8]) -> Option<()> {
        let CopyPiece { stack, address, .. } = wire_type::read(record)?;
        let words = record.get(offset_of!(CopyPiece, words)..size_of::<CopyPiece>())?;
        let open = self.0.get_mut(&stack)?;
        if open.bytes.is_empty() {
            open.begin = address;
        }
        // The records omit pages of the stack that were never written. No walk reads them.
        let at = usize::try_from(address.checked_sub(open.begin)?).ok()?;
        if open.bytes.len() <= at && at <= MAX_BYTES - words.len() {
            open.bytes.resize(at, 0);
            open.bytes.extend_from_slice(words);
        }
        Some(())
    }

    fn finish(&mut self, end: CopyEnd) -> Option<StackCopy> {
        let Open { taken, frames, begin, mut bytes } = self.0.remove(&end.stack)?;
        bytes.shrink_to_fit();
        Some(StackCopy { taken, end, frames, begin, bytes })
    }
}
