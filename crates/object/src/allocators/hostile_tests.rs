//! Damaged and hostile ELF files cause no panic and no unbounded read.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::Path;

use harness::fixtures::{GLIBC, MUSL};
use object::elf::{DT_GNU_HASH, DT_SYMTAB, PT_DYNAMIC};

use super::{CachedCode, UserHooks, Verdict, examine};
use crate::elf::{Elf, Machine, Source, dynamic_symbols, notes};
use crate::probe_site::{ObjectCode as _, PointerTarget};

/// Limit of the bytes read from one file; intact files need less.
const MAX_READ: usize = 8 << 20;

/// Source that counts the bytes read.
struct CountingSource<'a> {
    bytes: &'a [u8],
    read: Cell<usize>,
}

impl Source for &CountingSource<'_> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read.set(self.read.get() + into.len());
        self.bytes.read_at(offset, into)
    }
}

/// Returns the verdict on a file with these bytes. Also runs the queries of [`Elf`], and checks the number of bytes
/// read.
fn verdict(bytes: &[u8]) -> Verdict {
    let counted = CountingSource { bytes, read: Cell::new(0) };
    let (verdict, _) = examine(&counted, Path::new("file"), &UserHooks::default());
    if let Ok(elf) = Elf::parse(&counted) {
        let _ = (notes::build_id(&elf), elf.interpreter(), elf.needed(), elf.search_paths(), elf.soname());
    }
    assert!(counted.read.get() < MAX_READ, "{} bytes were read", counted.read.get());
    verdict
}

/// Reproducible random numbers (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

#[test]
fn a_truncated_libc_is_recognized_or_rejected() {
    for path in [GLIBC, MUSL] {
        let bytes = fs::read(path).unwrap();
        let whole = verdict(&bytes);
        assert!(matches!(whole, Verdict::Traced(_)), "{path}: {whole}");
        let start = (0..2048).chain((2048..bytes.len()).step_by(4099));
        let end = bytes.len().saturating_sub(300)..bytes.len();
        let mut rejected = 0;
        for length in start.chain(end) {
            let cut = verdict(&bytes[..length]);
            match cut {
                Verdict::NotElf => assert!(length < 4),
                Verdict::Bad(_) => rejected += 1,
                _ => assert_eq!(cut, whole, "cut at {length}"),
            }
        }
        assert!(rejected > 2000);
    }
}

#[test]
fn flipped_bits_cause_no_panic_and_no_unbounded_read() {
    let mut random = Random(0x6d65_6d74_7261_6365);
    for path in [GLIBC, MUSL] {
        let whole = fs::read(path).unwrap();
        let mut bytes = whole.clone();
        // The headers, symbols and hashes are at the start of the file, the dynamic section is near its end.
        let file: &[u8] = &whole;
        let elf = Elf::parse(file).unwrap();
        let dynamic = elf.segments().iter().find(|segment| segment.kind == PT_DYNAMIC).unwrap();
        let dynamic = usize::try_from(dynamic.offset).unwrap();
        for round in 0..3000 {
            let (from, length) = [(0, 1024), (0, 0x20000), (dynamic, 512)][round % 3];
            let offsets: Vec<usize> = (0..1 + round % 4).map(|_| from + random.below(length)).collect();
            for &offset in &offsets {
                bytes[offset] ^= 1 << random.below(8);
            }
            verdict(&bytes);
            for &offset in &offsets {
                bytes[offset] = whole[offset];
            }
        }
    }
}

#[test]
fn extreme_numbers_cause_no_panic_and_no_unbounded_read() {
    for path in [GLIBC, MUSL] {
        let whole = fs::read(path).unwrap();
        let mut bytes = whole.clone();
        let file: &[u8] = &whole;
        let elf = Elf::parse(file).unwrap();
        let tables = elf.segments().iter().filter(|segment| segment.kind == PT_DYNAMIC).map(|segment| segment.offset);
        let hashes = elf.dynamic_value(DT_GNU_HASH).map(|table| elf.locate(table).unwrap().0);
        let offsets = tables.chain(hashes).map(|table| usize::try_from(table).unwrap());
        let offsets: Vec<usize> =
            offsets.flat_map(|from| (from..from + 512).step_by(4)).chain((0..900).step_by(2)).collect();
        for width in [2, 4, 8] {
            for filler in [0x00, 0x7f, 0xff] {
                for &offset in &offsets {
                    bytes[offset..offset + width].fill(filler);
                    verdict(&bytes);
                    bytes[offset..offset + width].copy_from_slice(&whole[offset..offset + width]);
                }
            }
        }
    }
}

/// As [`flipped_bits_cause_no_panic_and_no_unbounded_read`], for the choice of sites. There are fewer rounds, because
/// each reads all code of the file.
#[test]
fn flipped_bits_are_harmless_to_the_choice_of_sites() {
    let mut random = Random(0x7072_6f62_6573_6974);
    let whole = fs::read(MUSL).unwrap();
    let file: &[u8] = &whole;
    let functions: Vec<_> = ["malloc", "calloc", "realloc", "reallocarray", "free", "posix_memalign", "valloc"].into();
    let elf = Elf::parse(file).unwrap();
    let code = functions.iter().flat_map(|name| dynamic_symbols::definitions(&elf, name).unwrap());
    let code: Vec<_> = code.map(|symbol| elf.code_offset(symbol.virt, symbol.size).unwrap().0 as usize).collect();
    let mut bytes = whole.clone();
    let mut chosen = 0;
    for round in 0..300 {
        let offset = match round % 3 {
            0 => random.below(1024),
            1 => random.below(0x8000),
            _ => code[random.below(code.len())] + random.below(32),
        };
        bytes[offset] ^= 1 << random.below(8);
        let counted = CountingSource { bytes: &bytes, read: Cell::new(0) };
        if let (_, Some(found)) = examine(&counted, Path::new("file"), &UserHooks::default()) {
            found.choose_sites(&counted);
            chosen += 1;
        }
        assert!(counted.read.get() < MAX_READ + 8 * whole.len(), "{} bytes were read", counted.read.get());
        bytes[offset] = whole[offset];
    }
    assert!(chosen > 100, "{chosen}");
}

#[test]
fn a_hash_chain_without_an_end_is_rejected() {
    let mut bytes = fs::read(GLIBC).unwrap();
    let table = {
        let file: &[u8] = &bytes;
        let elf = Elf::parse(file).unwrap();
        usize::try_from(elf.locate(elf.dynamic_value(DT_GNU_HASH).unwrap()).unwrap().0).unwrap()
    };
    let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
    let hashes = table + 16 + word(table + 8) * 8 + word(table) * 4;
    // Words after the hashes lose a bit too. This is harmless, because no chain reaches them.
    for at in (hashes..hashes + (64 << 10)).step_by(4) {
        bytes[at] &= !1;
    }
    let Verdict::Bad(why) = verdict(&bytes) else { panic!("a chain ended") };
    assert!(why.contains("hash chain"), "{why}");
}

#[test]
fn a_name_with_too_many_definitions_is_rejected() {
    let mut bytes = fs::read(GLIBC).unwrap();
    let file: &[u8] = &bytes;
    let elf = Elf::parse(file).unwrap();
    let at = |tag| usize::try_from(elf.locate(elf.dynamic_value(tag).unwrap()).unwrap().0).unwrap();
    let (table, symbols) = (at(DT_GNU_HASH), at(DT_SYMTAB));
    let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
    let hashes = table + 16 + word(table + 8) * 8 + word(table) * 4;
    let base = word(table + 4);
    // Every symbol from malloc's chain on is malloc, and the chain continues.
    let hash = object::elf::gnu_hash(b"malloc");
    let first = word(table + 16 + word(table + 8) * 8 + (hash as usize % word(table)) * 4);
    let malloc = (first..).find(|&index| word(hashes + (index - base) * 4) as u32 | 1 == hash | 1).unwrap();
    let symbol = bytes[symbols + malloc * 24..][..24].to_vec();
    for index in first..first + 100 {
        bytes[hashes + (index - base) * 4..][..4].copy_from_slice(&(hash & !1).to_le_bytes());
        bytes[symbols + index * 24..][..24].copy_from_slice(&symbol);
    }
    let Verdict::Bad(why) = verdict(&bytes) else { panic!("accepted") };
    assert!(why.contains("too often"), "{why}");
}

#[test]
fn foreign_files_have_distinct_verdicts() {
    assert_eq!(verdict(b""), Verdict::NotElf);
    assert_eq!(verdict(b"#!/bin/sh\n"), Verdict::NotElf);
    let whole = fs::read(GLIBC).unwrap();
    let with = |offset: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[offset] = byte;
        verdict(&bytes)
    };
    // e_ident[EI_CLASS], e_ident[EI_DATA] and e_machine (elf(5)).
    assert_eq!(with(4, 1), Verdict::Foreign("32 bits"));
    assert_eq!(with(5, 2), Verdict::Foreign("big-endian"));
    assert_eq!(with(18, 243), Verdict::Foreign("another architecture"));
}

/// Size of a relocation in bytes.
const RELOCATION: usize = 24;

/// Address of the first GOT slot of [`object_with_relocations`].
const SLOTS: u64 = 0x1000_0000;

/// Returns an object with two relocation tables, which have the same `count` relocations. The last `named` ones store the address
/// of `malloc` in successive GOT slots.
fn object_with_relocations(count: usize, named: usize) -> Vec<u8> {
    const DYNAMIC: usize = 0x100;
    const SYMBOLS: usize = 0x200;
    const STRINGS: usize = 0x300;
    const TABLE: usize = 0x400;
    // EM_X86_64 with R_X86_64_JUMP_SLOT and R_X86_64_RELATIVE, EM_AARCH64 with R_AARCH64_JUMP_SLOT and R_AARCH64_RELATIVE.
    let (machine, of_symbol, of_object): (u16, u64, u64) = match Machine::HOST {
        Machine::X86_64 => (62, 7, 8),
        Machine::Aarch64 => (183, 1026, 1027),
    };
    let size = TABLE + count * RELOCATION;
    let mut bytes = vec![0u8; size];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    // e_type, e_machine, e_phoff, e_phentsize and e_phnum (elf(5)).
    put(16, &3u16.to_le_bytes());
    put(18, &machine.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &2u16.to_le_bytes());
    // PT_LOAD and PT_DYNAMIC. Addresses are equal to file offsets.
    for (at, kind, start, size) in [(64, 1u32, 0, size), (120, 2, DYNAMIC, 0x100)] {
        put(at, &kind.to_le_bytes());
        for (field, value) in [(8, start), (16, start), (32, size), (40, size)] {
            put(at + field, &(value as u64).to_le_bytes());
        }
    }
    // DT_STRTAB, DT_STRSZ, DT_SYMTAB, DT_JMPREL, DT_PLTRELSZ, DT_RELA and DT_RELASZ.
    let table = count * RELOCATION;
    let dynamic = [(5, STRINGS), (10, 8), (6, SYMBOLS), (23, TABLE), (2, table), (7, TABLE), (8, table)];
    for (index, (tag, value)) in dynamic.into_iter().enumerate() {
        put(DYNAMIC + index * 16, &u64::to_le_bytes(tag));
        put(DYNAMIC + index * 16 + 8, &(value as u64).to_le_bytes());
    }
    put(SYMBOLS + 24, &1u32.to_le_bytes());
    put(STRINGS, b"\0malloc\0");
    for index in 0..count {
        let at = TABLE + index * RELOCATION;
        match (index + named).checked_sub(count) {
            Some(slot) => {
                put(at, &(SLOTS + 8 * slot as u64).to_le_bytes());
                put(at + 8, &(1 << 32 | of_symbol).to_le_bytes());
            }
            None => put(at + 8, &of_object.to_le_bytes()),
        }
    }
    bytes
}

#[test]
fn relocations_are_read_once_for_all_slots() {
    // The largest tables, with the largest number of imports in both of them.
    const COUNT: usize = (16 << 20) / RELOCATION;
    const NAMED: usize = 1 << 15;
    let bytes = object_with_relocations(COUNT, NAMED);
    let counted = CountingSource { bytes: &bytes, read: Cell::new(0) };
    let elf = Elf::parse(&counted).unwrap();
    let code = CachedCode::with_entries(&elf, []);
    let before = counted.read.get();
    for slot in (0..NAMED as u64).map(|index| SLOTS + 8 * index) {
        assert_eq!(code.pointer_target(slot), PointerTarget::Hooked, "{slot:#x}");
        assert_eq!(code.pointer_target(slot + 4), PointerTarget::Unknown, "{slot:#x}");
    }
    // Each import has a symbol of 24 bytes, and a name of seven bytes with its end.
    assert_eq!(counted.read.get() - before, 2 * COUNT * RELOCATION + NAMED * (24 + 7));
}

#[test]
fn too_many_relocations_leave_all_slots_unknown() {
    let target = |count: usize, named: usize| {
        let bytes = object_with_relocations(count, named);
        let file: &[u8] = &bytes;
        let elf = Elf::parse(file).unwrap();
        CachedCode::with_entries(&elf, []).pointer_target(SLOTS)
    };
    assert_eq!(target(1, 1), PointerTarget::Hooked);
    assert_eq!(target((1 << 15) + 1, (1 << 15) + 1), PointerTarget::Unknown, "too many imports in both tables");
    assert_eq!(target((16 << 20) / RELOCATION + 1, 1), PointerTarget::Unknown, "too large tables");
}
