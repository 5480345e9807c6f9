//! File format of a stored table.
//!
//! A file has a header of fixed length, the executable parts, the rules, the rows, and a checksum of all of these.
//! Numbers are little-endian. Any deviation makes the file invalid.

use std::hash::Hasher as _;

use memtrace_common::unwind::Rule;
use memtrace_model::{FileOffset, VirtOffset};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::code::Code;
use super::contents::ObjectContents;
use super::named_code::NamedCode;
use super::row::Row;
use super::table::Table;
use crate::elf::Machine;

/// Magic number. Its last byte is the version. The version changes if the format changes, or if the same call frame
/// information leads to another table.
const MAGIC: [u8; 8] = *b"mt-uwt\0\x05";

impl ObjectContents {
    /// Returns a keyed hash (SipHash-2-4) of all contents that determine the table. A stored table with another
    /// fingerprint is stale. Nobody can find different contents with equal fingerprints without the key.
    #[must_use]
    pub fn fingerprint(&self, key: &[u8; 16]) -> u128 {
        let mut out = Writer::default();
        out.u64(machine_number(self.machine));
        out.u64(self.address);
        out.u64(self.entry.0);
        out.u64(self.text.map_or(u64::MAX, |text| text));
        out.code(&self.code);
        out.u64(self.named.len() as u64);
        for NamedCode { begin, end, rule } in &self.named {
            out.u64(*begin);
            out.u64(*end);
            out.rule(rule);
        }
        out.u64(self.debug_frame.len() as u64);
        let mut hasher = SipHasher24::new_with_key(key);
        hasher.write(&out.0);
        hasher.write(&self.debug_frame);
        hasher.write(&self.eh_frame);
        hasher.finish128().as_u128()
    }
}

impl Table {
    /// Encodes the table. `fingerprint`: [`ObjectContents::fingerprint`] of the contents that the table was built from.
    #[must_use]
    pub fn encode(&self, fingerprint: u128) -> Vec<u8> {
        let mut out = Writer::default();
        out.0.extend_from_slice(&MAGIC);
        out.0.extend_from_slice(&fingerprint.to_le_bytes());
        out.u64(machine_number(self.machine));
        out.u64(self.rules.len() as u64);
        out.u64(self.rows.len() as u64);
        out.code(&self.code);
        for rule in &self.rules {
            out.rule(rule);
        }
        for row in &self.rows {
            out.0.extend_from_slice(&row.offset.to_le_bytes());
            out.0.extend_from_slice(&row.rule.to_le_bytes());
        }
        let checksum = checksum(&out.0);
        out.u64(checksum);
        out.0
    }

    /// Decodes a table; `None` if `bytes` are damaged or have another fingerprint.
    #[must_use]
    pub fn decode(bytes: &[u8], fingerprint: u128) -> Option<Self> {
        let (bytes, sum) = bytes.split_last_chunk()?;
        if checksum(bytes) != u64::from_le_bytes(*sum) {
            return None;
        }
        let mut input = Reader(bytes);
        (input.read()? == MAGIC && u128::from_le_bytes(input.read()?) == fingerprint).then_some(())?;
        let machine = [Machine::X86_64, Machine::Aarch64];
        let number = input.u64()?;
        let machine = machine.into_iter().find(|machine| machine_number(*machine) == number)?;
        let rules = usize::try_from(input.u64()?).ok()?;
        let rows = usize::try_from(input.u64()?).ok()?;
        let code = input.code()?;
        let rules = input.array(rules, |input| {
            let [cfa_kind, fp_kind, ra_kind, reserved] = input.read()?;
            let [cfa_offset, fp_offset, extra] = [input.i32()?, input.i32()?, input.i32()?];
            Some(Rule { cfa_kind, fp_kind, ra_kind, reserved, cfa_offset, fp_offset, extra })
        })?;
        let rows = input.array(rows, |input| Some(Row { offset: input.u32()?, rule: input.u32()? }))?;
        let table = Self { machine, code, rows, rules };
        (input.0.is_empty() && is_valid(&table)).then_some(table)
    }
}

/// Checks the invariants of a table.
fn is_valid(table: &Table) -> bool {
    let Some(last) = table.code.last() else { return false };
    let length = last.end().0 - table.origin().0;
    table.code.windows(2).all(|pair| pair[0].end() <= pair[1].address)
        && table.rows.windows(2).all(|pair| pair[0].offset < pair[1].offset)
        && table.rows.last().is_none_or(|row| u64::from(row.offset) <= length)
        && table.rules.first() == Some(&Rule::default())
        && table.rows.iter().all(|row| (row.rule as usize) < table.rules.len())
}

fn machine_number(machine: Machine) -> u64 {
    match machine {
        Machine::X86_64 => object::elf::EM_X86_64.0.into(),
        Machine::Aarch64 => object::elf::EM_AARCH64.0.into(),
    }
}

/// Returns a checksum of `bytes`. A change within an aligned word of eight bytes always changes the checksum, any other change
/// almost certainly. The checksum finds damage, not forgeries.
fn checksum(bytes: &[u8]) -> u64 {
    // The factor is odd, so that the multiplication is invertible. It has the bits of the golden ratio, which mix
    // well.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let (words, rest) = bytes.as_chunks();
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(sum, u64::from_le_bytes(last))
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn rule(&mut self, rule: &Rule) {
        self.0.extend_from_slice(&[rule.cfa_kind, rule.fp_kind, rule.ra_kind, rule.reserved]);
        for number in [rule.cfa_offset, rule.fp_offset, rule.extra] {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn code(&mut self, code: &[Code]) {
        self.u64(code.len() as u64);
        for code in code {
            self.u64(code.offset.0);
            self.u64(code.address.0);
            self.u64(code.size);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn read<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.read().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.read().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.read().map(i32::from_le_bytes)
    }

    fn code(&mut self) -> Option<Vec<Code>> {
        let count = usize::try_from(self.u64()?).ok()?;
        self.array(count, |input| {
            let (offset, address, size) = (FileOffset(input.u64()?), VirtOffset(input.u64()?), input.u64()?);
            Some(Code { offset, address, size })
        })
    }

    /// Reads `count` elements of at least eight bytes each.
    fn array<T>(&mut self, count: usize, mut read_one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        if count > self.0.len() / 8 {
            return None;
        }
        (0..count).map(|_| read_one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use gimli::write::CallFrameInstruction as Instruction;

    use super::*;
    use crate::eh_frame::synthetic::{FoundBy, Object, first};

    #[test]
    fn an_encoded_table_that_breaks_an_invariant_is_rejected() {
        let mut object = Object::new(Machine::X86_64, 0x2000);
        object.function(0, 0x40, first(Instruction::CfaOffset(16)));
        object.function(0x40, 0x80, vec![(4, Instruction::CfaOffset(32))]);
        let whole = Table::from_bytes(&object.file(FoundBy::Sections)).unwrap();
        let is_accepted = |change: fn(&mut Table)| {
            let mut table = whole.clone();
            change(&mut table);
            Table::decode(&table.encode(7), 7).is_some()
        };
        assert!(is_accepted(|_| ()));
        assert_eq!(Table::decode(&whole.encode(7), 8), None, "another fingerprint");
        assert!(!is_accepted(|table| table.rows[1].rule = 99));
        assert!(!is_accepted(|table| table.rows[1].offset = 0));
        assert!(!is_accepted(|table| table.rows.last_mut().unwrap().offset = u32::MAX));
        assert!(!is_accepted(|table| table.rules.clear()));
        assert!(!is_accepted(|table| table.rules[0].cfa_kind = 1));
        assert!(!is_accepted(|table| table.code.clear()));
        assert!(!is_accepted(|table| table.code.push(table.code[0])));
    }
}
