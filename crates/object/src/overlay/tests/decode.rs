//! Text of the machine code. The listings in this folder were written by hand.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use memtrace_model::VirtOffset;

use super::super::layout::{
    CHECKS, CODE_SIZE, DRAWN, DRAWS, EPOCH, FILTER, FIRST_DRAWS, FREES, IN_COLD, INTERVAL_BASE, LARGE, LEVEL,
    MAX_DISTANCE, NOT_INSERTED, ROUTINES, SALT, SAMPLES, SHIFT, TABLE,
};
use super::super::site::{OverlaySite, Relative, SiteKind};
use super::super::stub;
use super::sites::{self, BASE, BIAS};

const ROUTINES_LISTING: &str = include_str!("routines.txt");

/// Offsets of the words in the data, with their names.
const DATA: [(&str, u64); 16] = [
    ("EPOCH", EPOCH),
    ("INTERVAL_BASE", INTERVAL_BASE),
    ("SHIFT", SHIFT),
    ("LEVEL", LEVEL),
    ("SALT", SALT),
    ("IN_COLD", IN_COLD),
    ("DRAWN", DRAWN),
    ("FIRST_DRAWS", FIRST_DRAWS),
    ("SAMPLES", SAMPLES),
    ("FREES", FREES),
    ("NOT_INSERTED", NOT_INSERTED),
    ("CHECKS", CHECKS),
    ("LARGE", LARGE),
    ("MAX_DISTANCE", MAX_DISTANCE),
    ("FILTER", FILTER),
    ("TABLE", TABLE),
];

/// Names of addresses.
type Names = BTreeMap<u64, String>;

fn data_names() -> Names {
    let mut names: Names = DATA.iter().map(|(name, offset)| (BASE + CODE_SIZE + offset, String::from(*name))).collect();
    names.insert(BASE + DRAWS, String::from("DRAWS"));
    names
}

/// Decodes code up to `end`, without padding.
pub(super) fn instructions(bytes: &[u8], start: u64, end: u64) -> Vec<Instruction> {
    let code = &bytes[start as usize..end as usize];
    let decoder = Decoder::with_ip(64, code, BASE + start, DecoderOptions::NONE);
    decoder.into_iter().filter(|instruction| instruction.mnemonic() != Mnemonic::Int3).collect()
}

/// Formats an instruction in GNU syntax.
fn text(instruction: &Instruction, names: &Names) -> String {
    let name = |address: u64| names.get(&address).cloned().unwrap_or_else(|| format!("{address:#x}"));
    let register = |register: Register| format!("%{register:?}").to_lowercase();
    let operand = |number: u32| match instruction.op_kind(number) {
        OpKind::Register => register(instruction.op_register(number)),
        OpKind::NearBranch64 => name(instruction.near_branch_target()),
        OpKind::Memory => memory(instruction, &name, &register),
        _ => format!("${:#x}", instruction.immediate(number)),
    };
    let operands: Vec<String> = (0..instruction.op_count()).rev().map(operand).collect();
    let kinds: Vec<OpKind> = (0..instruction.op_count()).map(|number| instruction.op_kind(number)).collect();
    // GNU syntax has a suffix for the size of the operands if no register shows the size.
    let is_sized = kinds.contains(&OpKind::Memory) && !kinds.contains(&OpKind::Register);
    let suffix = match instruction.memory_size().size() {
        1 if is_sized => "b",
        8 if is_sized => "q",
        _ => "",
    };
    let lock = if instruction.has_lock_prefix() { "lock " } else { "" };
    let mnemonic = format!("{:?}", instruction.mnemonic()).to_lowercase();
    format!("{lock}{mnemonic}{suffix} {}", operands.join(",")).trim_end().to_owned()
}

fn memory(instruction: &Instruction, name: &impl Fn(u64) -> String, register: &impl Fn(Register) -> String) -> String {
    if instruction.is_ip_rel_memory_operand() {
        return format!("{}(%rip)", name(instruction.ip_rel_memory_address()));
    }
    let distance = instruction.memory_displacement64().cast_signed();
    if instruction.segment_prefix() == Register::FS {
        return format!("%fs:{distance:#x}");
    }
    let shown = match distance {
        0 => String::new(),
        1.. => format!("{distance:#x}"),
        _ => format!("-{:#x}", distance.unsigned_abs()),
    };
    let base = register(instruction.memory_base());
    match (instruction.memory_index(), instruction.memory_index_scale()) {
        (Register::None, _) => format!("{shown}({base})"),
        (index, 1) => format!("{shown}({base},{})", register(index)),
        (index, scale) => format!("{shown}({base},{},{scale})", register(index)),
    }
}

/// Compares code with a listing. Returns the addresses of the labels of the listing.
fn compare(code: &[Instruction], listing: &str, mut names: Names) -> Names {
    let lines = listing.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut expected = Vec::new();
    let mut labels = Names::new();
    for line in lines {
        match line.strip_suffix(':') {
            Some(label) => {
                let address = code.get(expected.len()).unwrap().ip();
                assert_eq!(labels.insert(address, label.to_owned()), None, "two labels at one place");
            }
            None => expected.push(line),
        }
    }
    names.extend(labels.clone());
    let found: Vec<String> = code.iter().map(|instruction| text(instruction, &names)).collect();
    assert_eq!(found, expected);
    labels
}

/// Compares the code of one site with a listing.
fn compare_site(site: &OverlaySite, listing: &str) {
    let image = stub::build(BASE, &[sites::at(site.clone())]).unwrap();
    let start = u64::from(image.sites[0].stub);
    let routines = instructions(&image.bytes, ROUTINES, start);
    let mut names = data_names();
    names.extend(compare(&routines, ROUTINES_LISTING, data_names()));
    names.insert(site.function.0 + BIAS, String::from("ENTRY"));
    names.insert(site.virt.0 + BIAS + site.original.len() as u64, String::from("BACK"));
    if let Some(relative) = &site.relative {
        names.insert(relative.target.0 + BIAS, String::from("OPERAND"));
    }
    compare(&instructions(&image.bytes, start, image.header.code_end.into()), listing, names);
}

#[test]
fn routines_equal_their_listing() {
    let image = stub::build(BASE, &[]).unwrap();
    let code = instructions(&image.bytes, ROUTINES, image.header.code_end.into());
    let labels = compare(&code, ROUTINES_LISTING, data_names());
    let probe = |offset: u32| labels[&(BASE + u64::from(offset))].as_str();
    let header = image.header;
    let probes = [header.alloc_probe, header.free_probe, header.tentative_probe, header.undo_probe].map(probe);
    assert_eq!(probes, ["alloc_probe", "free_probe", "tentative_probe", "undo_probe"]);
}

#[test]
fn code_of_each_kind_of_site_equals_its_listing() {
    compare_site(&sites::alloc(), include_str!("alloc.txt"));
    compare_site(&sites::replay(), include_str!("replay.txt"));
    compare_site(&sites::product(), include_str!("product.txt"));
    compare_site(&sites::alloc_out(), include_str!("alloc_out.txt"));
    compare_site(&sites::realloc(), include_str!("realloc.txt"));
    compare_site(&sites::free(), include_str!("free.txt"));
}

#[test]
fn prefixes_and_displacements_have_the_expected_bytes() {
    let image = stub::build(BASE, &[sites::replay()].map(sites::at)).unwrap();
    let start = image.sites[0].stub as usize;
    // sub %rdi,%fs:0x80; jb; cmp $0x1000,%rdi; ja: the target is at BIAS + 0x9000.
    let code = &image.bytes[start..start + 33];
    assert_eq!(code[..9], [0x64, 0x48, 0x29, 0x3c, 0x25, 0x80, 0, 0, 0]);
    assert_eq!(code[9..15], [0x0f, 0x82, 18, 0, 0, 0]);
    assert_eq!(code[15..22], [0x48, 0x81, 0xff, 0, 0x10, 0, 0]);
    let distance = (BIAS + 0x9000 - BASE - start as u64 - 28) as u32;
    assert_eq!(code[22..28], [&[0x0f, 0x87][..], &distance.to_le_bytes()].concat());
    let back = (BIAS + 0x800d - BASE - start as u64 - 33) as u32;
    assert_eq!(code[28..], [&[0xe9][..], &back.to_le_bytes()].concat());
    // The jump from the site.
    let jump = (BASE + start as u64).wrapping_sub(BIAS + 0x800c) as u32;
    assert_eq!(image.sites[0].jump.to_vec(), [&[0xe9][..], &jump.to_le_bytes()].concat());
}

#[test]
fn nothing_follows_a_displaced_jump() {
    let original = [0xe9, 0xf9, 0x0f, 0, 0]; // jmp +0xff9
    let site = OverlaySite {
        relative: Some(Relative { at: 1, target: VirtOffset(0x9000) }),
        is_jump: true,
        ..sites::plain("rallocx", 0x8000, 0x8002, &original, SiteKind::Alloc { size: sites::RSI })
    };
    let image = stub::build(BASE, &[sites::at(site)]).unwrap();
    let start = u64::from(image.sites[0].stub);
    let code = instructions(&image.bytes, start, image.header.code_end.into());
    let names = Names::from([(BIAS + 0x9000, String::from("OPERAND"))]);
    let found: Vec<String> = code.iter().skip(2).take(2).map(|instruction| text(instruction, &names)).collect();
    assert_eq!(found, ["jmp OPERAND", "lea -0x80(%rsp),%rsp"]);
}
