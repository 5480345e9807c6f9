//! Landing pads: code of a function that the unwinder enters when an exception passes a call (Itanium C++ ABI, Exception
//! Handling). The language-specific data area (LSDA) of a function lists them (`parse_lsda_header`,
//! gcc/libstdc++-v3/libsupc++/eh_personality.cc).

use std::collections::BTreeMap;

use gimli::{EndianSlice, LittleEndian, Pointer, Reader as _};

use super::contents::ObjectContents;
use super::error::Error;
use super::reader::Reader;
use super::table::origin;
use crate::elf::{Elf, Source};

/// Maximum number of bytes of an LSDA that are read. The largest functions of libstdc++ have about a thousand.
const MAX_LSDA: u64 = 1 << 16;

// Encodings (Linux Standard Base, Core specification, 10.5.1): DW_EH_PE_omit, DW_EH_PE_uleb128 and DW_EH_PE_udata4.
const OMIT: u8 = 0xff;
const ULEB128: u8 = 0x01;
const UNSIGNED_4: u8 = 0x03;

/// Landing pads of the functions of an object.
pub(crate) struct LandingPads<'a, S> {
    elf: &'a Elf<S>,
    /// Address of the LSDA of each function that has one, by the start of the function; `None` if it is not known.
    lsdas: BTreeMap<u64, Option<u64>>,
}

impl<'a, S: Source> LandingPads<'a, S> {
    /// Reads the call frame information of the object.
    pub(crate) fn find(elf: &'a Elf<S>) -> Result<Self, Error> {
        let contents = ObjectContents::find_in(elf)?;
        let mut lsdas = BTreeMap::new();
        Reader::of_eh_frame(&contents, origin(&contents.code).0).scan(|_, description| {
            if let Some(lsda) = description.entry.lsda() {
                let address = match lsda {
                    Pointer::Direct(address) => Some(address),
                    Pointer::Indirect(_) => None,
                };
                lsdas.insert(description.entry.initial_address(), address);
            }
            Ok(())
        })?;
        Ok(Self { elf, lsdas })
    }

    /// Returns the addresses of the landing pads of the function that starts at `start`; `None` if they cannot be read.
    pub(crate) fn of(&self, start: u64) -> Option<Vec<u64>> {
        let Some(lsda) = self.lsdas.get(&start) else { return Some(Vec::new()) };
        let (offset, left) = self.elf.locate((*lsda)?).ok()?;
        landing_pads(&self.elf.bytes_in_file(offset, left.min(MAX_LSDA)).ok()?, start)
    }
}

/// Returns the landing pads in an LSDA of the function that starts at `start`; `None` if the LSDA is damaged, or has a form
/// that compilers do not write for functions in one piece.
fn landing_pads(lsda: &[u8], start: u64) -> Option<Vec<u64>> {
    let mut rest = EndianSlice::new(lsda, LittleEndian);
    // The landing pads are relative to the start of the function, unless the LSDA states another start. Such an LSDA is refused.
    if rest.read_u8().ok()? != OMIT {
        return None;
    }
    // Skips the distance to the list of types, if there is a list.
    if rest.read_u8().ok()? != OMIT {
        rest.read_uleb128().ok()?;
    }
    let encoding = rest.read_u8().ok()?;
    let length = rest.read_uleb128().ok()?;
    let mut calls = rest.split(usize::try_from(length).ok()?).ok()?;
    let mut pads = Vec::new();
    while !calls.is_empty() {
        let mut number = || match encoding {
            ULEB128 => calls.read_uleb128().ok(),
            UNSIGNED_4 => calls.read_u32().ok().map(u64::from),
            _ => None,
        };
        let (_begin, _length, pad) = (number()?, number()?, number()?);
        let _action = calls.read_uleb128().ok()?;
        if pad != 0 {
            pads.push(start.wrapping_add(pad));
        }
    }
    Some(pads)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use harness::Scratch;

    use super::*;
    use crate::symbolize::find_function;

    #[test]
    fn landing_pads_are_relative_to_the_function() {
        let calls: [u8; 13] = [0x04, 0x05, 0x20, 0x01, 0x10, 0x02, 0x00, 0x00, 0x18, 0x02, 0x80, 0x01, 0x03];
        let with_types = [&[0xff, 0x9b, 0x15, ULEB128, 13][..], &calls, &[0xaa; 9]].concat();
        let without_types = [&[0xff, 0xff, ULEB128, 13][..], &calls].concat();
        for lsda in [&with_types, &without_types] {
            assert_eq!(landing_pads(lsda, 0x1000), Some(vec![0x1020, 0x1080]));
            assert_eq!(landing_pads(&lsda[..12], 0x1000), None);
        }
        let words = [0x04_u32, 0x05, 0x20].map(u32::to_le_bytes).concat();
        let lsda = [&[0xff, 0xff, UNSIGNED_4, 13][..], &words, &[1]].concat();
        assert_eq!(landing_pads(&lsda, 0x1000), Some(vec![0x1020]));
        assert_eq!(landing_pads(&[0xff, 0xff, 0x1b, 4, 1, 2, 3, 4], 0), None);
        assert_eq!(landing_pads(&[0x03, 0, 0, 0, 0, 0xff, ULEB128, 0], 0), None);
        assert_eq!(landing_pads(&[], 0), None);
    }

    #[test]
    fn landing_pads_of_a_compiled_function_are_found() {
        let source = r#"
            extern "C" void other(int value) { if (value > 1) throw value; }
            extern "C" __attribute__((noinline)) int guarded(int value) {
                try { other(value); return 1; } catch (int caught) { return caught; }
            }
            extern "C" __attribute__((noinline)) int plain(int value) { return value + 1; }
            int main(int count, char **) { return guarded(count) + plain(count); }"#;
        let scratch = Scratch::new();
        let file = File::open(scratch.compile("g++", "program", source, &["-O2", "-fno-inline"])).unwrap();
        let elf = Elf::parse(&file).unwrap();
        let pads = LandingPads::find(&elf).unwrap();
        let start = |name: &str| find_function(&file, name).unwrap().virt.0;
        let guarded = pads.of(start("guarded")).unwrap();
        assert!(!guarded.is_empty() && guarded.iter().all(|pad| *pad > start("guarded")), "{guarded:x?}");
        assert_eq!(pads.of(start("plain")), Some(Vec::new()));
        let damaged = [None, Some(start("plain")), Some(u64::MAX)].map(|lsda| {
            let lsdas = BTreeMap::from([(start("plain"), lsda)]);
            LandingPads { elf: &elf, lsdas }.of(start("plain"))
        });
        assert_eq!(damaged, [None, None, None]);
    }
}
