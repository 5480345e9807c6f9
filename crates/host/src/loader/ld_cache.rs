//! Parser of glibc's library cache, `/etc/ld.so.cache`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Magic and version at the start of a cache (glibc, sysdeps/generic/dl-cache.h, `struct cache_file_new`).
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Magic of the old format (`struct cache_file`). A cache in the new format may follow a cache in the old format.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
/// Size of the header in the new format, in bytes.
const HEADER: usize = 48;
/// Size of an entry in the new format, in bytes.
const ENTRY: usize = 24;
/// Size of the header in the old format, in bytes.
const OLD_HEADER: usize = 16;
/// Size of an entry in the old format, in bytes.
const OLD_ENTRY: usize = 12;

/// Returns the paths of each library by name, for all architectures and capabilities. Damaged entries are left out.
pub fn parse(cache: &[u8]) -> HashMap<Vec<u8>, Vec<PathBuf>> {
    let mut libraries: HashMap<_, Vec<PathBuf>> = HashMap::new();
    let Some(cache) = new_format(cache) else { return libraries };
    let Some(count) = word(cache, MAGIC.len()) else { return libraries };
    let entries = cache.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY);
    for entry in entries.take(count) {
        // Flags, then the offsets of the name and the path.
        let (Some(name), Some(path)) = (text(cache, word(entry, 4)), text(cache, word(entry, 8))) else { continue };
        libraries.entry(name.to_vec()).or_default().push(OsStr::from_bytes(path).into());
    }
    libraries
}

/// Returns the part of the cache in the new format. Offsets in this part are relative to its start.
fn new_format(cache: &[u8]) -> Option<&[u8]> {
    if cache.starts_with(MAGIC) {
        return Some(cache);
    }
    let count = word(cache.strip_prefix(OLD_MAGIC)?, 0)?;
    let end = count.checked_mul(OLD_ENTRY)?.checked_add(OLD_HEADER)?.checked_next_multiple_of(8)?;
    cache.get(end..).filter(|rest| rest.starts_with(MAGIC))
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_ne_bytes(*word)).ok()
}

fn text(cache: &[u8], at: Option<usize>) -> Option<&[u8]> {
    let rest = cache.get(at?..)?;
    rest.get(..rest.iter().position(|&byte| byte == 0)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn system_cache() -> Vec<u8> {
        fs::read("/etc/ld.so.cache").unwrap()
    }

    #[test]
    fn the_system_cache_parses_as_ldconfig_prints_it() {
        let printed = Command::new("/sbin/ldconfig").arg("-p").output().unwrap();
        let printed = String::from_utf8(printed.stdout).unwrap();
        let mut expected: Vec<(String, String)> = printed
            .lines()
            .filter_map(|line| line.trim().split_once(" => "))
            .map(|(name, path)| (name.split(' ').next().unwrap().to_owned(), path.to_owned()))
            .collect();
        let mut parsed: Vec<(String, String)> = parse(&system_cache())
            .into_iter()
            .flat_map(|(name, paths)| paths.into_iter().map(move |path| (name.clone(), path)))
            .map(|(name, path)| (String::from_utf8(name).unwrap(), path.to_str().unwrap().to_owned()))
            .collect();
        expected.sort();
        parsed.sort();
        assert!(!expected.is_empty());
        assert_eq!(parsed, expected);
    }

    #[test]
    fn the_new_format_is_found_after_the_old_one() {
        let new = system_cache();
        // One old entry: 16 + 12 bytes, and 4 more up to the next multiple of 8.
        let mut old = [OLD_MAGIC, &1_u32.to_ne_bytes(), &[0; 16]].concat();
        old.extend_from_slice(&new);
        assert_eq!(parse(&old), parse(&new));
    }

    #[test]
    fn a_truncated_cache_yields_a_subset() {
        let whole = system_cache();
        let all = parse(&whole);
        for length in (0..whole.len()).step_by(97) {
            for (name, paths) in parse(&whole[..length]) {
                assert!(paths.iter().all(|path| all[&name].contains(path)));
            }
        }
        assert!(parse(&[MAGIC, &[0xff; 28]].concat()).is_empty());
    }
}
