//! Size limit for sections after decompression. The library that reads the sections has no such limit.

use std::fs::File;
use std::io::{self, Read as _};

use object::LittleEndian;
use object::elf::{SHT_DYNSYM, SHT_STRTAB, SHT_SYMTAB};
use xz2::read::XzDecoder;
use xz2::stream::Stream;

use crate::elf::{Elf, Sections};

/// Maximum size of a section after its decompression, in bytes.
const LIMIT: u64 = 256 << 20;

/// Maximum memory of the decompression itself, in bytes. The highest level of xz(1) needs 65 MiB.
const DECODER: u64 = 128 << 20;

/// Kinds of sections of a file that are too large after decompression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TooLarge {
    /// True if a symbol table or `.gnu_debugdata` (a compressed symbol table) is too large.
    pub(super) symbols: bool,
    /// True if any other section is too large.
    pub(super) debug_info: bool,
}

impl TooLarge {
    /// Examines the sections of a file; `None` if the file has no section headers or they are damaged. The library may still
    /// find sections in such a file, because it ignores the size of a header and the class of the file, and accepts the offset
    /// 0 of the headers. The sizes of these sections are not known.
    pub(super) fn of(file: &File) -> Option<Self> {
        Self::beyond(file, LIMIT)
    }

    fn beyond(file: &File, limit: u64) -> Option<Self> {
        let elf = Elf::parse_headers(file).ok()?;
        let sections = Sections::read(&elf)?;
        let stated = |section| sections.uncompressed_size(section).ok().flatten();
        let mut too_large = Self::default();
        for section in sections.headers() {
            let is_debug_data = sections.is_named(section, ".gnu_debugdata");
            let expands = || sections.content(section, limit).is_some_and(|content| expands_beyond(&content, limit));
            let is_too_large = stated(section).is_some_and(|stated| stated > limit)
                || is_debug_data && (section.sh_size.get(LittleEndian) > limit || expands());
            if is_debug_data || [SHT_SYMTAB, SHT_DYNSYM, SHT_STRTAB].contains(&section.sh_type.get(LittleEndian)) {
                too_large.symbols |= is_too_large;
            } else {
                too_large.debug_info |= is_too_large;
            }
        }
        Some(too_large)
    }
}

/// Returns true if data in the format of xz(1) has more than `limit` bytes. The format states no size at its start.
fn expands_beyond(compressed: &[u8], limit: u64) -> bool {
    let Ok(stream) = Stream::new_stream_decoder(DECODER, 0) else { return true };
    let mut expanded = XzDecoder::new_stream(compressed, stream).take(limit.saturating_add(1));
    // The library refuses damaged data.
    io::copy(&mut expanded, &mut io::sink()).is_ok_and(|length| length > limit)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use harness::Scratch;
    use harness::process::run;

    use super::*;

    #[test]
    fn sections_are_measured_after_their_decompression() {
        let scratch = Scratch::new();
        let numbers: String =
            (0..2000).map(|number| format!("int f{number}(int x) {{ return x + {number}; }}\n")).collect();
        let library = scratch.compile("gcc", "library.so", &numbers, &["-shared", "-fPIC", "-g", "-gz=zlib"]);
        let beyond = |limit| TooLarge::beyond(&File::open(&library).unwrap(), limit);
        let debug_info = TooLarge { debug_info: true, ..TooLarge::default() };
        assert_eq!([100, 100 << 20].map(beyond), [Some(debug_info), Some(TooLarge::default())]);

        let symbols = scratch.path("symbols");
        fs::write(&symbols, vec![0; 1 << 20]).unwrap();
        run(Command::new("xz").arg(&symbols));
        let section = format!(".gnu_debugdata={}", scratch.path("symbols.xz").display());
        run(Command::new("objcopy").args(["--add-section", &section]).arg(&library));
        assert_eq!([(1 << 20) - 1, 1 << 20].map(|limit| beyond(limit).unwrap().symbols), [true, false]);
        run(Command::new("objcopy").args(["--update-section", ".gnu_debugdata=/proc/self/exe"]).arg(&library));
        assert!(!beyond(100 << 20).unwrap().symbols, "no xz data");
    }

    #[test]
    fn compressed_symbol_table_is_measured_too() {
        let scratch = Scratch::new();
        let library = scratch.compile("gcc", "library.so", "int f(void) { return 1; }", &["-shared", "-fPIC"]);
        let mut bytes = fs::read(&library).unwrap();
        let number = |at: usize| usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap();
        let table = number(40);
        let header = (0..).map(|index| table + 64 * index).find(|at| bytes[at + 4] == 2).unwrap();
        let content = number(header + 24);
        // SHF_COMPRESSED, and ch_size.
        bytes[header + 9] |= 8;
        bytes[content + 8..content + 16].copy_from_slice(&(LIMIT + 1).to_le_bytes());
        fs::write(&library, bytes).unwrap();
        let too_large = TooLarge::of(&File::open(&library).unwrap());
        assert_eq!(too_large, Some(TooLarge { symbols: true, debug_info: false }));
    }

    #[test]
    fn files_with_other_section_headers_are_left_to_nobody() {
        let scratch = Scratch::new();
        let library = scratch.compile("gcc", "library.so", "int f(void) { return 1; }", &["-shared", "-fPIC"]);
        let bytes = fs::read(&library).unwrap();
        let sections = |offset: usize, value: &[u8]| {
            let mut changed = bytes.clone();
            changed[offset..offset + value.len()].copy_from_slice(value);
            fs::write(&library, changed).unwrap();
            TooLarge::of(&File::open(&library).unwrap())
        };
        assert_eq!(sections(0, b"\x7f"), Some(TooLarge::default()));
        // The class, e_shoff, and e_shentsize.
        let damages: [(usize, &[u8]); 4] = [(4, &[1]), (40, &[0; 8]), (58, &[66]), (0, b"no ELF")];
        for (offset, value) in damages {
            assert_eq!(sections(offset, value), None, "{offset}");
        }
    }
}
