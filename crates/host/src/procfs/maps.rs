//! Parser of `/proc/PID/maps`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use memtrace_model::{AbsAddr, FileOffset, Pid};

use super::error::ProcessError;
use super::process::{failure, proc_path};
use crate::procfs::kernel_files;

/// Device and inode of a file, as in `maps` and in perf mmap events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode {
    pub device: u64,
    pub inode: u64,
}

/// Line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsEntry {
    pub start: AbsAddr,
    pub end: AbsAddr,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    /// True for `MAP_SHARED`.
    pub shared: bool,
    pub offset: FileOffset,
    /// Mapped file; `None` for anonymous memory.
    pub file: Option<Inode>,
    pub path: PathBuf,
}

/// Reads `/proc/PID/maps`. The entries are ordered by address and do not overlap.
pub(super) fn entries(pid: Pid) -> Result<Vec<MapsEntry>, ProcessError> {
    let path = proc_path(pid, "maps");
    let read = |path: &Path| {
        let mut entries = Vec::new();
        for line in BufReader::new(kernel_files::open(path)?).split(b'\n') {
            if let Some(entry) = MapsEntry::parse(&line?) {
                push_in_order(&mut entries, entry, |entry| entry);
            }
        }
        Ok(entries)
    };
    kernel_files::access(&path, read).map_err(|error| failure(pid, &path, error))
}

/// Adds the VMA `next` to a list, and removes the part of the list that it overlaps.
///
/// The kernel returns a few dozen VMAs per read, and continues with the first one that ends above the last address (`m_start`,
/// fs/proc/task_mmu.c). If a VMA has grown between two reads, the kernel lists it again, with its old pages.
pub(super) fn push_in_order<T>(list: &mut Vec<T>, mut next: T, entry_of: impl Fn(&mut T) -> &mut MapsEntry) {
    let start = entry_of(&mut next).start;
    while list.pop_if(|last| entry_of(last).start >= start).is_some() {}
    if let Some(last) = list.last_mut().map(&entry_of) {
        last.end = last.end.min(start);
    }
    list.push(next);
}

impl MapsEntry {
    /// Parses `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE   PATH`; returns `None` for a malformed line.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut rest = line;
        let range = word(&mut rest)?;
        let permissions = word(&mut rest)?;
        let offset = word(&mut rest)?;
        let device = word(&mut rest)?;
        let inode = word(&mut rest)?;
        let (start, end) = range.split_once('-')?;
        let (major, minor) = device.split_once(':')?;
        let device = libc::makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let inode = inode.parse().ok()?;
        let permission = |at: usize, letter: u8| permissions.as_bytes().get(at) == Some(&letter);
        Some(Self {
            start: AbsAddr(u64::from_str_radix(start, 16).ok()?),
            end: AbsAddr(u64::from_str_radix(end, 16).ok()?),
            readable: permission(0, b'r'),
            writable: permission(1, b'w'),
            executable: permission(2, b'x'),
            shared: permission(3, b's'),
            offset: FileOffset(u64::from_str_radix(offset, 16).ok()?),
            file: (inode != 0).then_some(Inode { device, inode }),
            path: PathBuf::from(OsString::from_vec(unescape(rest.trim_ascii_start()))),
        })
    }
}

/// Removes the first word and one blank from `rest`.
fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
    let (word, tail) = rest.split_at(end);
    *rest = tail.strip_prefix(b" ").unwrap_or(tail);
    std::str::from_utf8(word).ok().filter(|word| !word.is_empty())
}

/// Restores newlines, which the kernel escapes as `\012`; it escapes no other character (`show_map_vma` calls
/// `seq_path` with `"\n"`).
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = tail;
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests;
