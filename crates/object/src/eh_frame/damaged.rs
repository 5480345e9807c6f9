//! Reading a damaged object terminates quickly, without a panic, with a valid table or an error. The objects are real
//! and synthetic ones.

use std::fs;
use std::time::{Duration, Instant};

use gimli::write::CallFrameInstruction as Instruction;
use gimli::{AArch64, X86_64};
use harness::Random;
use memtrace_common::unwind::MAX_RULES;
use memtrace_model::VirtOffset;

use super::layout::{Layout, Limits};
use super::synthetic::{FoundBy, Object, expression};
use super::table::Table;
use crate::elf::Machine;

/// Maximum time to read an object. Each takes far less, unless reading hangs.
const DEADLINE: Duration = Duration::from_secs(10);

/// Damages `bytes` in one to eight places, or truncates them. `frames` is the offset of the call frame information;
/// about half of the places lie after it.
fn damage_bytes(random: &mut Random, bytes: &mut Vec<u8>, frames: usize) {
    if random.below(8) == 0 {
        bytes.truncate(random.below(bytes.len()));
        return;
    }
    for _ in 0..=random.below(8) {
        let begin = [0, frames][random.below(2)];
        let at = begin + random.below(if begin == 0 { 512 } else { bytes.len() - frames }.min(bytes.len() - begin));
        let written: Vec<u8> = match random.below(4) {
            0 => vec![bytes[at] ^ (1 << random.below(8))],
            1 => vec![[0x00, 0x7F, 0x80, 0xFF][random.below(4)]; 1 << random.below(4)],
            2 => random.number().to_le_bytes()[..1 << random.below(4)].to_vec(),
            _ => {
                let from = random.below(bytes.len());
                bytes[from..bytes.len().min(from + 24)].to_vec()
            }
        };
        let end = bytes.len().min(at + written.len());
        bytes[at..end].copy_from_slice(&written[..end - at]);
    }
}

/// Builds and places the table of the object `bytes`, and checks its invariants. Returns true if the object has a
/// table.
fn has_valid_table(bytes: &[u8], random: &mut Random) -> bool {
    let start = Instant::now();
    let table = Table::from_bytes(bytes);
    let was_read = table.is_ok();
    if let Ok(table) = table {
        let code: u64 = table.code().iter().map(|code| code.size).sum();
        let rows: Vec<_> = table.rows().collect();
        assert!(rows.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1));
        assert!(rows.len() as u64 <= 2 * (code + 1024), "{} rows for {code} bytes", rows.len());
        for &(address, rule) in rows.iter().take(100) {
            assert_eq!(table.rule_at(address), rule);
        }
        for _ in 0..10 {
            let anywhere = table.rule_at(VirtOffset(random.number()));
            assert_eq!(anywhere.reserved, 0);
        }
        let mut layout = Layout::new(Limits { blobs: 64, pages: 1 << 20 });
        let plan = layout.place(&table).unwrap();
        assert!(plan.pages.len() as u64 <= (bytes.len() as u64 >> 12) + 2 + 512 * table.code().len() as u64);
        assert!(layout.rules().rules().len() <= MAX_RULES);
    }
    assert!(start.elapsed() < DEADLINE, "{} bytes took {:?}", bytes.len(), start.elapsed());
    was_read
}

/// Damages `file` in `times` ways. Some results must have a table and some must not. Otherwise the damage hits bytes
/// that are never read, or the headers of all files are rejected.
fn damage(file: &[u8], times: usize, seed: u64) {
    let mut random = Random::new(seed);
    let frames = file.windows(4).position(|bytes| bytes == [1, b'z', b'R', 0]).unwrap_or(0x1000);
    assert!(has_valid_table(file, &mut random));
    let read = (0..times).filter(|_| {
        let mut bytes = file.to_vec();
        damage_bytes(&mut random, &mut bytes, frames);
        has_valid_table(&bytes, &mut random)
    });
    let read = read.count();
    assert!((times / 20..times - times / 20).contains(&read), "{read} of {times} had a table");
}

/// Returns an object with descriptions that contain every instruction that the converter handles.
fn object_with_all_instructions(machine: Machine) -> Object {
    let (fp, ra) = match machine {
        Machine::X86_64 => (X86_64::RBP, X86_64::RA),
        Machine::Aarch64 => (AArch64::X29, AArch64::X30),
    };
    let mut object = Object::new(machine, 0x800);
    let instructions = vec![
        (4, Instruction::CfaOffset(16)),
        (4, Instruction::Offset(fp, -16)),
        (8, Instruction::CfaRegister(fp)),
        (8, Instruction::RememberState),
        (12, Instruction::Restore(fp)),
        (16, Instruction::RestoreState),
        (40, Instruction::Register(ra, fp)),
        (44, Instruction::Undefined(ra)),
        (48, Instruction::CfaExpression(expression(&[0x76, 0x78, 0x06]))),
        (52, Instruction::CfaExpression(expression(&[0x77, 8, 0x80, 0, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22]))),
        (56, Instruction::Expression(fp, expression(&[0x76, 0]))),
        (60, Instruction::ArgsSize(32)),
    ];
    for begin in (0..0x800).step_by(64) {
        if begin % 256 == 0 {
            object.signal_frame(begin, 64, instructions.clone());
        } else {
            object.function(begin, 64, instructions.clone());
        }
    }
    object
}

#[test]
fn damaged_synthetic_objects_are_handled() {
    for (seed, machine) in [Machine::X86_64, Machine::Aarch64].into_iter().enumerate() {
        for found in [FoundBy::Sections, FoundBy::Index] {
            damage(&object_with_all_instructions(machine).file(found), 2000, seed as u64);
        }
    }
}

#[test]
fn a_damaged_library_is_handled() {
    let file =
        fs::read("/lib/x86_64-linux-gnu/libgcc_s.so.1").expect("the library that every C++ and Rust program needs");
    damage(&file, 300, 7);
}

#[test]
fn a_damaged_library_without_sections_is_handled() {
    let mut file = fs::read("/lib/x86_64-linux-gnu/libgcc_s.so.1").expect("the library that every program needs");
    let whole = Table::from_bytes(&file).unwrap();
    file[40..48].fill(0);
    file[58..64].fill(0);
    assert_eq!(Table::from_bytes(&file).unwrap(), whole, "the index leads to the same section");
    damage(&file, 300, 8);
}
