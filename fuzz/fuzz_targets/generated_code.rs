//! Perf maps and jitdump files.

#![no_main]

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use memtrace_host::procfs::descriptor_path;
use memtrace_model::{AbsAddr, CodeNames as _, GeneratedCode, NoPerfMap, ProcessImage};
use memtrace_object::ObjectFiles;
use memtrace_object::symbolize::ImageCode;
use rustix::fs::{MemfdFlags, memfd_create};

#[derive(Debug)]
struct Descriptors;

impl ObjectFiles for Descriptors {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn open_below(&self, _: &Path, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn is_own_executable(&self, _: &File) -> bool {
        false
    }
}

fn memory_with(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("names", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = memory_with(bytes) else { return };
    let path = descriptor_path(&file);
    let clock_start = Duration::ZERO;
    let perf_map =
        GeneratedCode { perf_map: Ok(path.clone()), jitdumps: Vec::new(), clock_start, keeps_frame_pointers: false };
    let jitdump = GeneratedCode { perf_map: Err(NoPerfMap::Missing), jitdumps: vec![path], ..perf_map.clone() };
    for code in [perf_map, jitdump] {
        let mut names = ImageCode::new(&ProcessImage::default(), Some(&code), &Descriptors);
        for address in [0, 0x1000, u64::MAX] {
            let _ = names.find(AbsAddr(address), Duration::from_secs(1));
        }
        let _ = names.advice();
    }
});
