//! The sections `.gnu_debuglink` and `.gnu_debugaltlink`, which name other files with debug information.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use memtrace_model::BuildId;
use object::LittleEndian;
use object::elf::SectionHeader64;

use crate::elf::{Sections, Source};

/// Maximum length of a file name (`NAME_MAX`, include/uapi/linux/limits.h).
const MAX_NAME: usize = 255;

/// Length of the name with its zero and padding, and the checksum.
const MAX_SECTION: u64 = MAX_NAME as u64 + 1 + 4;

/// Name and checksum of a separate debug file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DebugLink {
    /// Name of the file, without a directory.
    pub(super) name: Box<[u8]>,
    /// CRC-32 of the file.
    pub(super) checksum: u32,
}

impl DebugLink {
    /// Reads the section. Returns `None` if it is damaged or names a path: a target could name any file of the host.
    pub(super) fn read<S: Source>(sections: &Sections<'_, S>, section: &SectionHeader64<LittleEndian>) -> Option<Self> {
        Self::parse(&sections.content(section, MAX_SECTION)?)
    }

    /// Parses a name with a zero, padding to a multiple of four bytes, and the checksum (GDB manual, "Debugging
    /// Information in Separate Files").
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|&byte| byte == 0)?;
        let name = &bytes[..end];
        if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.len() > MAX_NAME {
            return None;
        }
        let checksum = bytes.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
        Some(Self { name: name.into(), checksum: u32::from_le_bytes(*checksum) })
    }
}

/// Directory of supplementary files below a directory of debug files, by convention of dwz(1).
const SUPPLEMENTARY: &str = ".dwz";

/// Maximum length of `.gnu_debugaltlink`: a path (`PATH_MAX`, include/uapi/linux/limits.h) and a build ID.
pub(super) const MAX_ALT_SECTION: u64 = 4096 + 64;

/// A supplementary file, which has the parts that the debug information of several files shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AltLink {
    /// Path below a directory of debug files: `.dwz/…`.
    pub(super) path: PathBuf,
    pub(super) build_id: BuildId,
}

impl AltLink {
    /// Reads the section. Returns `None` if it is damaged, or names no file in a directory of supplementary files.
    pub(super) fn read<S: Source>(sections: &Sections<'_, S>, section: &SectionHeader64<LittleEndian>) -> Option<Self> {
        Self::parse(&sections.content(section, MAX_ALT_SECTION)?)
    }

    /// Parses a path with a zero, and the build ID of the file (dwz.c of dwz).
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|&byte| byte == 0)?;
        let path = Path::new(OsStr::from_bytes(&bytes[..end]));
        let path: PathBuf = path.components().skip_while(|part| part.as_os_str() != SUPPLEMENTARY).collect();
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
        let build_id = bytes.get(end + 1..).filter(|id| !id.is_empty())?;
        (is_below && path.components().count() > 1).then(|| Self { path, build_id: BuildId(build_id.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_a_name_and_a_checksum() {
        let link = |name: &[u8], checksum| Some(DebugLink { name: name.into(), checksum });
        assert_eq!(DebugLink::parse(b"abc\0\x04\x03\x02\x01"), link(b"abc", 0x0102_0304));
        assert_eq!(DebugLink::parse(b"a.debug\0\x01\0\0\0"), link(b"a.debug", 1));
        assert_eq!(DebugLink::parse(b"abcd\0\0\0\0\x01\0\0\0"), link(b"abcd", 1));
    }

    #[test]
    fn paths_and_damaged_sections_are_no_links() {
        let name = [b"a".repeat(256).as_slice(), &[0; 8]].concat();
        for section in [
            b"".as_slice(),
            b"abc",
            b"abc\0\x01\0\0",
            b"\0\0\0\0\x01\0\0\0",
            b"..\0\0\x01\0\0\0",
            b"/etc/shadow\0\x01\0\0\0",
            b"../a\0\0\0\0\x01\0\0\0",
            &name,
        ] {
            assert_eq!(DebugLink::parse(section), None, "{section:?}");
        }
    }

    #[test]
    fn supplementary_files_are_below_their_directory() {
        let parse = |path: &str| AltLink::parse(&[path.as_bytes(), b"\0\x01\x02"].concat());
        let link = |path: &str| Some(AltLink { path: path.into(), build_id: BuildId([1, 2].into()) });
        assert_eq!(parse("/usr/lib/debug/.dwz/x86_64-linux-gnu/a.debug"), link(".dwz/x86_64-linux-gnu/a.debug"));
        assert_eq!(parse("../../.dwz/package-1.2"), link(".dwz/package-1.2"));
        for path in ["/etc/shadow", "../.dwz/../../etc/shadow", ".dwz", ""] {
            assert_eq!(parse(path), None, "{path}");
        }
        assert_eq!(AltLink::parse(b".dwz/a\0"), None);
        assert_eq!(AltLink::parse(b".dwz/a"), None);
    }
}
