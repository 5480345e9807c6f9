//! Thread-local variables of an object, and their distance from the thread pointer ("ELF Handling For Thread-Local
//! Storage", 3.4, variant II).

use object::LittleEndian;
use object::elf::{DT_SYMTAB, PT_TLS, SHN_UNDEF, Sym64};

use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::relocations;
use super::segment::Segment;
use super::source::{LE, Source};

/// `R_X86_64_TPOFF64`: relocation that stores the distance of a variable from the thread pointer.
const TPOFF64: u32 = 18;

/// A GOT slot that holds the distance of a thread-local variable from the thread pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadPointerSlot {
    /// Address of the slot in the object.
    pub virt: u64,
    /// Offset of the variable in the object's TLS block.
    pub variable: u64,
}

/// Returns the segment of thread-local variables (`PT_TLS`).
pub fn segment(elf: &Elf<impl Source>) -> Option<&Segment> {
    elf.segments().iter().find(|segment| segment.kind == PT_TLS)
}

/// Returns the distance of the TLS block of an x86-64 executable from the thread pointer. The distance is negative
/// (lld, ELF/InputSection.cpp, `getTlsTpOffset`).
pub fn block(elf: &Elf<impl Source>) -> Option<i64> {
    let segment = segment(elf)?;
    let end = segment.virt.wrapping_add(segment.memory_size);
    let padding = end.wrapping_neg() & segment.align.max(1).wrapping_sub(1);
    Some(segment.memory_size.wrapping_add(padding).wrapping_neg().cast_signed())
}

/// Returns the GOT slots for the object's own thread-local variables on x86-64.
pub(crate) fn pointer_slots(elf: &Elf<impl Source>) -> Result<Vec<ThreadPointerSlot>, ElfError> {
    let mut slots = Vec::new();
    relocations::for_each(elf, |relocation| {
        if relocation.kind == TPOFF64
            && let Some(start) = own_variable(elf, relocation.symbol)?
        {
            let variable = start.wrapping_add_signed(relocation.addend);
            slots.push(ThreadPointerSlot { virt: relocation.place, variable });
        }
        Ok(())
    })?;
    Ok(slots)
}

/// Returns the offset of a dynamic symbol in the object's TLS block; `None` if the object does not define the symbol.
/// Symbol 0 stands for the start of the block.
fn own_variable(elf: &Elf<impl Source>, symbol: u32) -> Result<Option<u64>, ElfError> {
    if symbol == 0 {
        return Ok(Some(0));
    }
    let table = elf.dynamic_value(DT_SYMTAB).ok_or(BEYOND)?;
    let symbol: Sym64<LittleEndian> = elf.entry(table, u64::from(symbol))?;
    Ok((symbol.st_shndx.get(LE) != SHN_UNDEF).then(|| symbol.st_value.get(LE)))
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use std::fs::File;

    use harness::Scratch;
    use harness::fixtures::output;

    use super::*;
    use crate::elf::symbol_table;

    /// Prints the distance of a variable from the thread pointer.
    const PROGRAM: &str = "#include <stdio.h>
        __thread char first = 1;
        __thread long searched[5] = {1};
        __thread char last[77] __attribute__((aligned(ALIGNMENT)));
        int main(void) { return printf(\"%ld\", (long)searched - (long)__builtin_thread_pointer()) < 0 || last[first]; }";

    #[test]
    fn distances_of_executables_are_those_of_the_linker() {
        let scratch = Scratch::new();
        let builds: [(&str, &[&str]); 4] = [
            ("pie", &["-DALIGNMENT=1", "-pie"]),
            ("fixed", &["-DALIGNMENT=1", "-no-pie"]),
            ("static", &["-DALIGNMENT=1", "-static"]),
            ("aligned", &["-DALIGNMENT=128"]),
        ];
        for (build, options) in builds {
            let path = scratch.compile("gcc", build, PROGRAM, options);
            let file = File::open(&path).unwrap();
            let elf = Elf::parse(&file).unwrap();
            let [(offset, 40)] = symbol_table::find_thread_locals(&elf, |name| name == b"searched").unwrap()[..] else {
                panic!("{build}")
            };
            let distance = block(&elf).unwrap() + i64::try_from(offset).unwrap();
            assert_eq!(distance.to_string(), output(path.to_str().unwrap(), &[]), "{build}");
        }
    }

    #[test]
    fn slots_of_a_library_match_readelf() {
        let scratch = Scratch::new();
        let source = "__thread long a, b; static __thread long c; long f(void) { return a + b + c; }
            void g(long n) { c = n; }";
        let path = scratch.compile("gcc", "slots.so", source, &["-O1", "-shared", "-fPIC", "-ftls-model=initial-exec"]);
        let printed = output("readelf", &["-rW".as_ref(), path.as_ref()]);
        let expected = printed.lines().filter(|line| line.contains("R_X86_64_TPOFF64")).map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
            // Columns: place, info, type, and then either the addend, or the symbol's value, its name, a plus sign
            // and the addend.
            ThreadPointerSlot { virt: number(fields[0]), variable: number(fields[3]) }
        });
        let expected: Vec<_> = expected.collect();
        assert_eq!(expected.len(), 3, "{printed}");
        assert_eq!(pointer_slots(&Elf::parse(&File::open(path).unwrap()).unwrap()).unwrap(), expected);
    }
}
