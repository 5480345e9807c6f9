//! Tables of values by address of code: files, lines, and indices of inlined calls (`pcvalue`, runtime/symtab.go).
//!
//! A table is a list of pairs of varints: a change of the value, in zigzag encoding, and the length of the code with this value.
//! A change of 0 ends the table, unless it is the first one.

use super::file_bytes::FileBytes;
use crate::elf::Source;

/// Maximum number of bytes of a varint of 32 bits.
const MAX_VARINT: u32 = 5;

/// Table of one function.
#[derive(Clone, Copy, Debug)]
pub(super) struct PcValues {
    /// File offset of the table.
    pub(super) offset: u64,
    /// Address of the function.
    pub(super) entry: u64,
    /// Unit of lengths of code in bytes: the size of the shortest instruction.
    pub(super) quantum: u64,
}

impl PcValues {
    /// Returns the value at the address `target`; `None` if the table does not cover the address. `steps`: number of pairs that
    /// may still be read.
    pub(super) fn find(self, bytes: &mut FileBytes<'_, impl Source>, target: u64, steps: &mut u32) -> Option<i32> {
        let (mut offset, mut address, mut value) = (self.offset, self.entry, -1_i32);
        loop {
            *steps = steps.checked_sub(1)?;
            let change = varint(bytes, &mut offset)?;
            if change == 0 && address != self.entry {
                return None;
            }
            let change = (change & 1).wrapping_neg() ^ (change >> 1);
            value = value.wrapping_add(change.cast_signed());
            let length = u64::from(varint(bytes, &mut offset)?) * self.quantum;
            address = address.checked_add(length)?;
            if target < address {
                return Some(value);
            }
        }
    }
}

/// Returns the number at `offset`, and moves `offset` after it.
fn varint(bytes: &mut FileBytes<'_, impl Source>, offset: &mut u64) -> Option<u32> {
    let mut number = 0;
    for index in 0..MAX_VARINT {
        let byte = bytes.byte(*offset)?;
        *offset = offset.checked_add(1)?;
        number |= u32::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
