//! USDT probes: the notes of `.note.stapsdt` (SystemTap's UserSpaceProbeImplementation).

use memtrace_model::{FileOffset, UserProbe};
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
    // prelink moves the object without changing its notes.
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
    let arguments = arguments.split_whitespace().map(|argument| argument_of(elf.machine(), argument)).collect();
    Some(UserProbe { name, offset: FileOffset(offset), semaphore, arguments })
}

/// Returns the bytes of the shortest nop.
const fn nop(machine: Machine) -> &'static [u8] {
    match machine {
        Machine::X86_64 => &[0x90],
        Machine::Aarch64 => &[0x1f, 0x20, 0x03, 0xd5],
    }
}

/// Returns the number of a call's argument by its location in a note, such as `8@%rdi`.
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
