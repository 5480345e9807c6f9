//! Selection of the compared files.

use std::fs;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{ET_DYN, ET_EXEC, FileHeader64};
use object::read::elf::FileHeader as _;

/// Common libraries and large executables, used if installed.
const COMMON: [&str; 16] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/x86_64-linux-gnu/libm.so.6",
    "/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/x86_64-linux-gnu/libssl.so.3",
    "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus",
    "/usr/bin/bash",
    "/usr/bin/perl",
    "/usr/bin/git",
    "/usr/bin/node",
    "/usr/bin/python3",
    "/usr/bin/gdb",
    "/usr/bin/sqlite3",
    "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
];

/// Directories for the remaining files.
const FOLDERS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/bin"];

/// Size limit for files that are not in [`COMMON`], so that the test does not take minutes.
const MAX_SIZE: u64 = 4 << 20;

/// Returns `count` different executables and libraries of this machine: the common ones, then some of each directory.
pub(crate) fn find(count: usize) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = COMMON.iter().filter_map(|path| usable(Path::new(path), u64::MAX)).collect();
    let mut others: Vec<Vec<PathBuf>> = FOLDERS.iter().map(|folder| list(Path::new(folder))).collect();
    while found.len() < count {
        assert!(
            others.iter().any(|others| !others.is_empty()),
            "this machine has fewer than {count} executables and libraries"
        );
        for path in others.iter_mut().filter_map(Vec::pop).filter_map(|path| usable(&path, MAX_SIZE)) {
            if found.len() < count && !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Resolves `path` if it is a 64-bit ELF file with call frame information.
fn usable(path: &Path, max_size: u64) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let metadata = path.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > max_size {
        return None;
    }
    let bytes = fs::read(&path).ok()?;
    let header = FileHeader64::<LittleEndian>::parse(bytes.as_slice()).ok()?;
    let is_program = header.is_little_endian() && matches!(header.e_type(LittleEndian), ET_EXEC | ET_DYN);
    let sections = header.sections(LittleEndian, bytes.as_slice()).ok()?;
    let has_frames = sections.section_by_name(LittleEndian, b".eh_frame").is_some();
    (is_program && has_frames).then_some(path)
}
