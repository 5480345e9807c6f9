//! Reads of single bytes, numbers and strings of a file, through a cache.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::elf::{Elf, Source};

/// Number of bytes read at once.
const PIECE: u64 = 1 << 14;
/// Maximum number of pieces that are kept.
const MAX_PIECES: usize = 256;
/// Maximum number of pieces that are read: 1 GiB. The tables of the largest programs have 100 MB.
const MAX_READS: u32 = 1 << 16;

/// Bytes of a file.
pub(super) struct FileBytes<'a, S> {
    elf: &'a Elf<S>,
    size: u64,
    pieces: FxHashMap<u64, Rc<[u8]>>,
    /// Number of the last piece, and its bytes.
    last: (u64, Rc<[u8]>),
    reads: u32,
}

impl<'a, S: Source> FileBytes<'a, S> {
    pub(super) fn new(elf: &'a Elf<S>) -> Self {
        let size = elf.file_size().unwrap_or(0);
        Self { elf, size, pieces: FxHashMap::default(), last: (u64::MAX, Rc::default()), reads: 0 }
    }

    /// Returns the bytes from the file offset `offset` to the end of its piece. Returns no bytes after the end of the file, or if
    /// too much was read.
    fn rest_of_piece(&mut self, offset: u64) -> &[u8] {
        let number = offset / PIECE;
        if self.last.0 != number {
            self.last = (number, self.piece(number));
        }
        self.last.1.get((offset % PIECE) as usize..).unwrap_or_default()
    }

    fn piece(&mut self, number: u64) -> Rc<[u8]> {
        if let Some(piece) = self.pieces.get(&number) {
            return Rc::clone(piece);
        }
        let start = number * PIECE;
        if start >= self.size || self.reads >= MAX_READS {
            return Rc::default();
        }
        self.reads += 1;
        let read = self.elf.bytes_in_file(start, PIECE.min(self.size - start));
        let piece: Rc<[u8]> = read.unwrap_or_default().into();
        if self.pieces.len() >= MAX_PIECES {
            self.pieces.clear();
        }
        self.pieces.insert(number, Rc::clone(&piece));
        piece
    }

    pub(super) fn byte(&mut self, offset: u64) -> Option<u8> {
        self.rest_of_piece(offset).first().copied()
    }

    /// Returns `N` bytes from `offset` on.
    pub(super) fn array<const N: usize>(&mut self, offset: u64) -> Option<[u8; N]> {
        let mut array = [0; N];
        let mut done = 0;
        while done < N {
            let bytes = self.rest_of_piece(offset.checked_add(done as u64)?);
            let length = bytes.len().min(N - done);
            if length == 0 {
                return None;
            }
            array[done..done + length].copy_from_slice(&bytes[..length]);
            done += length;
        }
        Some(array)
    }

    pub(super) fn number(&mut self, offset: u64) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    /// Returns the bytes from `offset` up to a zero, and at most `most` bytes. Returns `None` if the file ends before.
    pub(super) fn string(&mut self, offset: u64, most: usize) -> Option<Vec<u8>> {
        let mut string = Vec::new();
        loop {
            let bytes = self.rest_of_piece(offset.checked_add(string.len() as u64)?);
            let bytes = &bytes[..bytes.len().min(most - string.len())];
            let end = bytes.iter().position(|&byte| byte == 0);
            let is_end_of_file = bytes.is_empty();
            string.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            if end.is_some() || string.len() == most {
                return Some(string);
            }
            if is_end_of_file {
                return None;
            }
        }
    }

    /// Returns true if the bytes from `offset` on are `expected`.
    pub(super) fn is_at(&mut self, offset: u64, expected: &[u8]) -> bool {
        (0..).zip(expected).all(|(index, &byte)| offset.checked_add(index).and_then(|at| self.byte(at)) == Some(byte))
    }
}
