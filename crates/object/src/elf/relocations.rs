//! Relocations of the dynamic section, and the pointers that they store.

use object::elf::{DT_RELA, DT_RELASZ, DT_RELR, DT_RELRSZ, ET_EXEC, Rela64};
use object::{LittleEndian, U64, pod};

use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::machine::Machine;
use super::source::{LE, Source};

/// Number of bytes of data read at once: a multiple of the size of a relocation and of a word.
const CHUNK: u64 = 24 << 12;
/// Size of a pointer in bytes.
const WORD: u64 = 8;

/// A decoded relocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relocation {
    /// Address of the word that the dynamic linker writes.
    pub(super) place: u64,
    pub(super) kind: u32,
    /// Index of the dynamic symbol; 0 for none.
    pub(super) symbol: u32,
    pub(super) addend: i64,
}

/// Calls `visit` with each relocation of `DT_RELA`. The relocations of the PLT are in another table.
pub(super) fn for_each(
    elf: &Elf<impl Source>,
    mut visit: impl FnMut(Relocation) -> Result<(), ElfError>,
) -> Result<(), ElfError> {
    let (Some(table), Some(size)) = (elf.dynamic_value(DT_RELA), elf.dynamic_value(DT_RELASZ)) else {
        return Ok(());
    };
    for_each_chunk(elf, table, size, |_, bytes| {
        let whole = bytes.len() - bytes.len() % size_of::<Rela64<LittleEndian>>();
        let relocations: &[Rela64<LittleEndian>] = pod::slice_from_all_bytes(&bytes[..whole]).map_err(|()| BEYOND)?;
        relocations.iter().try_for_each(|relocation| {
            let info = relocation.r_info.get(LE);
            visit(Relocation {
                place: relocation.r_offset.get(LE),
                kind: info as u32,
                symbol: (info >> 32) as u32,
                addend: relocation.r_addend.get(LE),
            })
        })
    })
}

/// Calls `visit` with the address and the target of each pointer in the data that points into the object itself. In
/// an executable with a fixed address, each word is passed: nothing distinguishes pointers from other data there.
pub(crate) fn for_each_pointer(elf: &Elf<impl Source>, mut visit: impl FnMut(u64, u64)) -> Result<(), ElfError> {
    if elf.header().e_type.get(LE) == ET_EXEC {
        return for_each_word(elf, visit);
    }
    let relative = match elf.machine() {
        Machine::X86_64 => 8,
        Machine::Aarch64 => 1027,
    };
    for_each(elf, |relocation| {
        if relocation.kind == relative {
            visit(relocation.place, relocation.addend.cast_unsigned());
        }
        Ok(())
    })?;
    for_each_compact(elf, visit)
}

/// Visits the pointers of `DT_RELR`. An even entry is the address of a pointer. An odd entry is a bitmap of the next
/// 63 words (System V ABI, "Relative Relocation Table").
fn for_each_compact(elf: &Elf<impl Source>, mut visit: impl FnMut(u64, u64)) -> Result<(), ElfError> {
    let (Some(table), Some(size)) = (elf.dynamic_value(DT_RELR), elf.dynamic_value(DT_RELRSZ)) else {
        return Ok(());
    };
    let mut data = DataWindow::default();
    let mut next = 0u64;
    for_each_chunk(elf, table, size, |_, bytes| {
        for entry in words(bytes) {
            if entry & 1 == 0 {
                visit(entry, data.word(elf, entry)?);
                next = entry.wrapping_add(WORD);
                continue;
            }
            for bit in (1..64).filter(|bit| entry >> bit & 1 == 1) {
                let place = next.wrapping_add((bit - 1) * WORD);
                visit(place, data.word(elf, place)?);
            }
            next = next.wrapping_add(63 * WORD);
        }
        Ok(())
    })
}

/// Calls `visit` with the address and the value of each aligned word in the `PT_LOAD` segments.
fn for_each_word(elf: &Elf<impl Source>, mut visit: impl FnMut(u64, u64)) -> Result<(), ElfError> {
    for segment in elf.loaded() {
        let first = segment.virt.next_multiple_of(WORD);
        let size = segment.file_size.saturating_sub(first - segment.virt);
        for_each_chunk(elf, first, size, |start, bytes| {
            (0..).zip(words(bytes)).for_each(|(index, word)| visit(start.wrapping_add(index * WORD), word));
            Ok(())
        })?;
    }
    Ok(())
}

/// Reads `size` bytes from the address `virt` on in chunks, and calls `visit` with the address and the bytes of each.
fn for_each_chunk(
    elf: &Elf<impl Source>,
    virt: u64,
    size: u64,
    mut visit: impl FnMut(u64, &[u8]) -> Result<(), ElfError>,
) -> Result<(), ElfError> {
    if size == 0 {
        return Ok(());
    }
    let (offset, left) = elf.locate(virt)?;
    if size > left {
        return Err(BEYOND);
    }
    for done in (0..size).step_by(CHUNK as usize) {
        let at = offset.checked_add(done).ok_or(BEYOND)?;
        visit(virt.wrapping_add(done), &elf.bytes(at, CHUNK.min(size - done))?)?;
    }
    Ok(())
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Buffer of the data from an address on.
#[derive(Default)]
struct DataWindow {
    start: u64,
    bytes: Vec<u8>,
}

impl DataWindow {
    fn word<S: Source>(&mut self, elf: &Elf<S>, virt: u64) -> Result<u64, ElfError> {
        if self.buffered(virt).is_none() {
            let (offset, left) = elf.locate(virt)?;
            self.bytes = elf.bytes(offset, left.min(CHUNK))?;
            self.start = virt;
        }
        self.buffered(virt).ok_or(BEYOND)
    }

    fn buffered(&self, virt: u64) -> Option<u64> {
        let at = usize::try_from(virt.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(U64::<LittleEndian>::from_bytes(bytes.try_into().ok()?).get(LE))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use harness::Scratch;

    use super::*;
    use crate::elf::constants;

    const NAMES: usize = 200;

    #[test]
    fn pointers_are_found_in_all_kinds_of_executables() {
        let names: Vec<_> = (0..NAMES).map(|number| format!("name of entry {number}")).collect();
        // Every third word is no pointer, so that the bitmaps have zeros.
        let entries: Vec<_> = names.iter().map(|name| format!("{{\"{name}\", main, 1}},")).collect();
        let source = format!(
            "int main(void); const struct {{ const char *name; int (*function)(void); long number; }} table[] = {{{}}};
            int main(void) {{ return table[0].number == 0; }}",
            entries.concat()
        );
        let scratch = Scratch::new();
        let builds: [(&str, &[&str]); 4] = [
            ("pie", &["-pie", "-fPIE"]),
            ("compact", &["-pie", "-fPIE", "-Wl,-z,pack-relative-relocs"]),
            ("fixed", &["-no-pie"]),
            ("old", &["-no-pie", "-Wl,-z,noseparate-code"]),
        ];
        for (build, options) in builds {
            let file = File::open(scratch.compile("gcc", build, &source, options)).unwrap();
            let elf = Elf::parse(&file).unwrap();
            let mut pointers = Vec::new();
            for_each_pointer(&elf, |place, target| pointers.push((target, place))).unwrap();
            let place = |name: &String| {
                let [string] = constants::find(&elf, format!("{name}\0").as_bytes()).unwrap()[..] else {
                    panic!("{build}: {name}")
                };
                let mut places = pointers.iter().filter(|(target, _)| *target == string).map(|(_, place)| *place);
                (places.next().unwrap(), places.next())
            };
            let places: Vec<_> = names.iter().map(place).collect();
            let expected: Vec<_> = (0..NAMES as u64).map(|number| (places[0].0 + 24 * number, None)).collect();
            assert_eq!(places, expected, "{build}");
        }
    }
}
