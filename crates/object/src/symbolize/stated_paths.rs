//! Paths of other files in a file with debug information. The library that reads the information opens these files.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use super::debug_file::DIRECTORIES;
use super::debug_link::MAX_ALT_SECTION;
use crate::elf::{Elf, Sections};

/// Returns true if the debug information of `file` can make the library open another file. Supplementary files in the
/// directories of debug files do not count, because these directories belong to root.
pub(super) fn lead_elsewhere(file: &File) -> bool {
    let Ok(elf) = Elf::parse_headers(file) else { return true };
    let Some(sections) = Sections::read(&elf) else { return true };
    sections.headers().iter().any(|section| {
        let is_named = |name| sections.is_named(section, name);
        let is_compressed = || !matches!(sections.uncompressed_size(section), Ok(None));
        let content = || sections.content(section, MAX_ALT_SECTION);
        is_named(".gnu_debuglink")
            || is_named(".debug_sup")
            || is_named(".gnu_debugaltlink") && (is_compressed() || content().is_none_or(|content| !is_safe(&content)))
    })
}

/// Returns true if the path in a section `.gnu_debugaltlink` is below a directory of debug files.
fn is_safe(section: &[u8]) -> bool {
    let Some(end) = section.iter().position(|&byte| byte == 0) else { return false };
    let path = Path::new(OsStr::from_bytes(&section[..end]));
    let is_below = DIRECTORIES.iter().any(|directory| path.starts_with(directory));
    is_below && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_debug_files_are_safe() {
        assert!(is_safe(b"/usr/lib/debug/.dwz/x86_64-linux-gnu/a.debug\0\x01\x02"));
        assert!(is_safe(b"/lib/debug/.dwz/a\0\x01\x02"));
        for section in [
            b"/usr/lib/debug/../../../etc/passwd\0\x01".as_slice(),
            b"/usr/lib/debugger/.dwz/a\0\x01",
            b"/tmp/.dwz/a\0\x01",
            b"../../.dwz/a\0\x01",
            b"usr/lib/debug/.dwz/a\0\x01",
            b"/usr/lib/debug/.dwz/a",
            b"\0",
            b"",
        ] {
            assert!(!is_safe(section), "{section:?}");
        }
    }
}
