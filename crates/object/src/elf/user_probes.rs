//! USDT probes: the notes of `.note.stapsdt` (SystemTap's UserSpaceProbeImplementation).

use memtrace_model::{ArgumentLocation, ArgumentPlace, FileOffset, UserProbe};
use object::elf::{FileHeader64, NoteType};
use object::read::elf::NoteIterator;
use object::{LittleEndian, U64};

use super::error::ElfError;
use super::file::Elf;
use super::machine::Machine;
use super::sections::Sections;
use super::segment::Segment;
use super::source::{LE, Source};

/// Maximum number of bytes of notes that are read. A note has about 80 bytes.
const MAX_NOTES: u64 = 4 << 20;

/// Maximum number of arguments of a probe (`sys/sdt.h`).
const MAX_ARGUMENTS: usize = 12;

/// Names of the general registers of x86-64, by their DWARF numbers (System V ABI, AMD64 supplement, figure 3.36): of 64, 32, 16
/// and 8 bits.
const X86_64_REGISTERS: [[&str; 4]; 16] = [
    ["%rax", "%eax", "%ax", "%al"],
    ["%rdx", "%edx", "%dx", "%dl"],
    ["%rcx", "%ecx", "%cx", "%cl"],
    ["%rbx", "%ebx", "%bx", "%bl"],
    ["%rsi", "%esi", "%si", "%sil"],
    ["%rdi", "%edi", "%di", "%dil"],
    ["%rbp", "%ebp", "%bp", "%bpl"],
    ["%rsp", "%esp", "%sp", "%spl"],
    ["%r8", "%r8d", "%r8w", "%r8b"],
    ["%r9", "%r9d", "%r9w", "%r9b"],
    ["%r10", "%r10d", "%r10w", "%r10b"],
    ["%r11", "%r11d", "%r11w", "%r11b"],
    ["%r12", "%r12d", "%r12w", "%r12b"],
    ["%r13", "%r13d", "%r13w", "%r13b"],
    ["%r14", "%r14d", "%r14w", "%r14b"],
    ["%r15", "%r15d", "%r15w", "%r15b"],
];

/// Argument registers of an x86-64 call in order, as the notes name them.
const X86_64_ARGUMENTS: [&str; 6] = ["%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"];
/// Argument registers of an aarch64 call in order, as the notes name them.
const AARCH64_ARGUMENTS: [&str; 6] = ["x0", "x1", "x2", "x3", "x4", "x5"];

/// Returns the probes of `provider`. Skips a probe if its note is damaged, if the linker has dropped its code, or if
/// its instruction is no nop: a breakpoint inside of another instruction would change that instruction.
pub fn find(elf: &Elf<impl Source>, provider: &str) -> Result<Vec<UserProbe>, ElfError> {
    let Some(sections) = Sections::read(elf) else { return Ok(Vec::new()) };
    let Some(section) = sections.named(".note.stapsdt") else { return Ok(Vec::new()) };
    let base = sections.named(".stapsdt.base").map(|section| section.sh_addr.get(LE));
    let data = elf.bytes_in_file(section.sh_offset.get(LE), section.sh_size.get(LE).min(MAX_NOTES))?;
    let notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LE, section.sh_addralign.get(LE), &data);
    let mut notes = notes.map_err(|_| ElfError::Malformed("notes of an unknown alignment"))?;
    let mut probes = Vec::new();
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"stapsdt" && note.n_type(LE) == NoteType(3) {
            probes.extend(decode(elf, note.desc(), provider, base));
        }
    }
    Ok(probes)
}

/// Returns the probe of a note; `None` if the probe is skipped. `base` is the address of the section `.stapsdt.base`.
fn decode(elf: &Elf<impl Source>, note: &[u8], provider: &str, base: Option<u64>) -> Option<UserProbe> {
    let (addresses, texts) = note.split_at_checked(3 * size_of::<u64>())?;
    let mut addresses = addresses.as_chunks().0.iter().map(|bytes| U64::<LittleEndian>::from_bytes(*bytes).get(LE));
    let (location, noted_base, semaphore) = (addresses.next()?, addresses.next()?, addresses.next()?);
    let mut texts = texts.split(|&byte| byte == 0).map(str::from_utf8);
    if texts.next()? != Ok(provider) {
        return None;
    }
    let (name, arguments) = (texts.next()?.ok()?.to_owned(), texts.next()?.ok()?);
    // prelink moves the object, but does not change the addresses in its notes. `moved` is the distance.
    let moved = base.map_or(0, |base| base.wrapping_sub(noted_base));
    let in_segment = |address: u64, is_valid: fn(&Segment) -> bool| {
        let address = address.wrapping_add(moved);
        elf.loaded().filter(|segment| is_valid(segment)).find_map(|segment| segment.locate(address))
    };
    let (offset, _) = in_segment(location, |segment| segment.executable)?;
    let nop = nop(elf.machine());
    if elf.bytes(offset, nop.len() as u64).ok()? != nop {
        return None;
    }
    let semaphore = match semaphore {
        0 => None,
        address => in_segment(address, |segment| segment.writable && !segment.executable)
            .filter(|&(offset, left)| left >= 2 && offset != 0)
            .map(|(offset, _)| FileOffset(offset)),
    };
    let texts = split_arguments(arguments);
    let arguments = texts.iter().map(|argument| argument_of(elf.machine(), argument)).collect();
    let places = texts.iter().map(|argument| place_of(elf.machine(), argument)).collect();
    Some(UserProbe { name, offset: FileOffset(offset), semaphore, arguments, places })
}

/// Returns the arguments in the text of a note. On aarch64, an argument may contain spaces: `8@[sp, 16]`.
fn split_arguments(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    let ends = |letter: char| {
        match letter {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ => {}
        }
        letter.is_ascii_whitespace() && !is_inside
    };
    text.split(ends).filter(|argument| !argument.is_empty()).take(MAX_ARGUMENTS).collect()
}

/// Returns the bytes of the shortest nop.
const fn nop(machine: Machine) -> &'static [u8] {
    match machine {
        Machine::X86_64 => &[0x90],
        Machine::Aarch64 => &[0x1f, 0x20, 0x03, 0xd5],
    }
}

/// Returns the place of an argument in a note, such as `-4@%eax`: the size of the value in bytes, negative for a signed value,
/// and an operand of the assembler. Operands with a symbol, a second register or a floating-point register have no place.
fn place_of(machine: Machine, argument: &str) -> Option<ArgumentPlace> {
    let (size, operand) = argument.split_once('@')?;
    let (is_signed, size) = size.strip_prefix('-').map_or((false, size), |size| (true, size));
    let bits = match size {
        "1" => 8,
        "2" => 16,
        "4" => 32,
        "8" => 64,
        _ => return None,
    };
    let location = match machine {
        Machine::X86_64 => x86_64_location(operand),
        Machine::Aarch64 => aarch64_location(operand),
    };
    Some(ArgumentPlace { location: location?, bits, is_signed })
}

/// Returns the location of an operand in the syntax of AT&T: `$5`, `%rdi`, `-8(%rbp)`.
fn x86_64_location(operand: &str) -> Option<ArgumentLocation> {
    if let Some(constant) = operand.strip_prefix('$') {
        return number(constant).map(ArgumentLocation::Constant);
    }
    if operand.starts_with('%') {
        return x86_64_register(operand).map(ArgumentLocation::Register);
    }
    let (offset, register) = operand.strip_suffix(')')?.split_once('(')?;
    let offset = if offset.is_empty() { 0 } else { number(offset)? };
    // An address has 64 bits.
    let (register, _) = (0..).zip(X86_64_REGISTERS).find(|(_, names)| names[0] == register)?;
    Some(ArgumentLocation::Memory { register, offset })
}

/// Returns the DWARF number of a general register.
fn x86_64_register(name: &str) -> Option<u8> {
    (0..).zip(X86_64_REGISTERS).find(|(_, names)| names.contains(&name)).map(|(number, _)| number)
}

/// Returns the location of an operand of aarch64: `5`, `x19`, `[sp, 16]`.
fn aarch64_location(operand: &str) -> Option<ArgumentLocation> {
    let Some(memory) = operand.strip_prefix('[') else {
        let register = aarch64_register(operand).map(ArgumentLocation::Register);
        return register.or_else(|| number(operand).map(ArgumentLocation::Constant));
    };
    let memory = memory.strip_suffix(']')?;
    let (register, offset) = memory.split_once(',').unwrap_or((memory, "0"));
    let offset = offset.trim();
    let offset = number(offset.strip_prefix('#').unwrap_or(offset))?;
    Some(ArgumentLocation::Memory { register: aarch64_register(register.trim())?, offset })
}

/// Returns the DWARF number of a general register. The stack pointer has the number 31.
fn aarch64_register(name: &str) -> Option<u8> {
    if name == "sp" {
        return Some(31);
    }
    let number = name.strip_prefix(['x', 'w'])?;
    // `parse` would accept a sign before the digits.
    if !number.starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    number.parse().ok().filter(|number| *number <= 30)
}

/// Parses a number of an operand, which may be hexadecimal and negative.
fn number(text: &str) -> Option<i64> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    if !digits.starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let magnitude = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    let number = magnitude.cast_signed();
    Some(if is_negative { number.wrapping_neg() } else { number })
}

/// Returns the number of the call argument that is passed in the register of a place in a note, such as `8@%rdi`.
fn argument_of(machine: Machine, place: &str) -> Option<u8> {
    let register = place.trim_start_matches('-').strip_prefix("8@")?;
    let registers = match machine {
        Machine::X86_64 => X86_64_ARGUMENTS,
        Machine::Aarch64 => AARCH64_ARGUMENTS,
    };
    (0..).zip(registers).find(|(_, name)| *name == register).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use harness::Scratch;
    use proptest::prelude::*;

    use super::*;

    const SOURCE: &str = r#"
        #include "memtrace.h"
        int main(int argc, char **argv) {
            memtrace_tag_begin(argv[0]);
            memtrace_event_number(argv[0], argc);
            memtrace_tag_end();
        }"#;

    fn program() -> Vec<u8> {
        let include = format!("-I{}/../../memtrace-probes/include", env!("CARGO_MANIFEST_DIR"));
        let scratch = Scratch::new();
        fs::read(scratch.compile("gcc", "program", SOURCE, &["-x", "c", "-O1", &include])).unwrap()
    }

    fn probes(file: &[u8]) -> Vec<UserProbe> {
        find(&Elf::parse(file).unwrap(), "memtrace").unwrap()
    }

    /// Returns the file offset of the contents of a section.
    fn section(file: &[u8], name: &str) -> usize {
        let elf = Elf::parse(file).unwrap();
        let sections = Sections::read(&elf).unwrap();
        sections.named(name).unwrap().sh_offset.get(LE) as usize
    }

    #[test]
    fn probes_of_a_program_are_read() {
        let file = program();
        let probes = probes(&file);
        let summary: Vec<_> = probes.iter().map(|probe| (probe.name.as_str(), probe.arguments.clone())).collect();
        assert_eq!(
            summary,
            [("tag_begin", vec![Some(0)]), ("event_number", vec![Some(0), Some(1)]), ("tag_end", Vec::new())]
        );
        for probe in &probes {
            let FileOffset(semaphore) = probe.semaphore.expect("each has a semaphore");
            assert_eq!(file[semaphore as usize..][..2], [0, 0]);
            assert!(file[probe.offset.0 as usize..].starts_with(nop(Machine::HOST)));
        }
        assert_eq!(find(&Elf::parse(&file[..]).unwrap(), "other").unwrap(), []);
    }

    fn location(machine: Machine, argument: &str) -> Option<ArgumentLocation> {
        place_of(machine, argument).map(|place| place.location)
    }

    #[test]
    fn places_have_a_width_and_a_sign() {
        let place = |argument| place_of(Machine::X86_64, argument).map(|place| (place.bits, place.is_signed));
        assert_eq!(
            ["8@%rdi", "-4@%eax", "2@%cx", "-1@%r9b"].map(place),
            [Some((64, false)), Some((32, true)), Some((16, false)), Some((8, true))]
        );
        let refused = ["", "8", "@%rdi", "3@%rdi", "+8@%rdi", "8f@%xmm0", "16@%rdi", "--8@%rdi", "8@"];
        assert_eq!(refused.map(place), [None; 9]);
    }

    #[test]
    fn operands_of_x86_64_are_located() {
        use ArgumentLocation::{Constant, Memory, Register};
        let at = |argument| location(Machine::X86_64, argument);
        let registers = [0, 3, 7, 15].map(|number| Some(Register(number)));
        assert_eq!(["8@%rax", "8@%rbx", "8@%rsp", "4@%r15d"].map(at), registers);
        assert_eq!(at("8@-16(%rbp)"), Some(Memory { register: 6, offset: -16 }));
        assert_eq!(at("8@(%r12)"), Some(Memory { register: 12, offset: 0 }));
        assert_eq!(at("8@0x20(%rsp)"), Some(Memory { register: 7, offset: 32 }));
        assert_eq!(at("8@$4096"), Some(Constant(4096)));
        assert_eq!(at("-4@$-1"), Some(Constant(-1)));
        assert_eq!(at("8@$18446744073709551615"), Some(Constant(-1)));
        let refused = ["8@%xmm0", "8@%rip", "8@size(%rip)", "8@8(%eax)", "8@(%rax,%rbx,8)", "8@8(%rax", "8@$x"];
        assert_eq!(refused.map(at), [None; 7]);
    }

    #[test]
    fn operands_of_aarch64_are_located() {
        use ArgumentLocation::{Constant, Memory, Register};
        let at = |argument| location(Machine::Aarch64, argument);
        assert_eq!(["8@x0", "4@w30", "8@sp"].map(at), [0, 30, 31].map(|number| Some(Register(number))));
        assert_eq!(at("8@[x19]"), Some(Memory { register: 19, offset: 0 }));
        assert_eq!(at("8@[sp, 16]"), Some(Memory { register: 31, offset: 16 }));
        assert_eq!(at("8@[x29,#-8]"), Some(Memory { register: 29, offset: -8 }));
        assert_eq!(at("4@65536"), Some(Constant(65536)));
        let refused = ["8@x31", "8@x+1", "8@d0", "8@[x0, x1]", "8@[x0", "8@x"];
        assert_eq!(refused.map(at), [None; 6]);
    }

    #[test]
    fn arguments_are_separated_by_spaces_outside_of_brackets() {
        assert_eq!(split_arguments("8@%rdi  8@-8(%rbp)"), ["8@%rdi", "8@-8(%rbp)"]);
        assert_eq!(split_arguments("8@[sp, 16] 8@x0"), ["8@[sp, 16]", "8@x0"]);
        assert_eq!(split_arguments("8@[sp, 16 8@x0"), ["8@[sp, 16 8@x0"]);
        assert_eq!(split_arguments(" "), Vec::<&str>::new());
        assert_eq!(split_arguments(&"8@x0 ".repeat(20)).len(), MAX_ARGUMENTS);
    }

    #[test]
    fn probes_of_a_moved_object_are_found() {
        let file = program();
        let mut moved = file.clone();
        // Offset of the addresses in the first note: a header of 12 bytes and the owner's name precede them.
        let at = section(&file, ".note.stapsdt") + 20;
        for place in [at, at + 8, at + 16] {
            let old = u64::from_le_bytes(moved[place..place + 8].try_into().unwrap());
            moved[place..place + 8].copy_from_slice(&(old + 0x1000_0000).to_le_bytes());
        }
        assert_eq!(probes(&moved), probes(&file));
    }

    #[test]
    fn instructions_that_are_no_nop_are_skipped() {
        let mut file = program();
        let before = probes(&file);
        file[before[0].offset.0 as usize] = 0x55;
        assert_eq!(probes(&file), before[1..]);
    }

    #[test]
    fn files_without_notes_have_no_probes() {
        let file = fs::read(Path::new(harness::fixtures::GLIBC)).unwrap();
        assert_eq!(probes(&file), []);
    }

    proptest! {
        #[test]
        fn damaged_notes_cause_no_panic(changes in prop::collection::vec((0usize..400, any::<u8>()), 1..24)) {
            use std::sync::LazyLock;
            static FILE: LazyLock<Vec<u8>> = LazyLock::new(program);
            let mut file = FILE.clone();
            let notes = section(&file, ".note.stapsdt");
            for (at, byte) in changes {
                if let Some(place) = file.get_mut(notes + at) {
                    *place = byte;
                }
            }
            for probe in find(&Elf::parse(&file[..]).unwrap(), "memtrace").unwrap_or_default() {
                prop_assert!((probe.offset.0 as usize) < file.len());
            }
        }
    }
}
