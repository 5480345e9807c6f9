//! Perf maps and jitdump files.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use memtrace_fuzz::{OpenFiles, memory_with};
use memtrace_host::procfs::descriptor_path;
use memtrace_model::{AbsAddr, CodeNames as _, GeneratedCode, NoPerfMap, ProcessImage};
use memtrace_object::symbolize::ImageCode;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = memory_with(bytes) else { return };
    let path = descriptor_path(&file);
    let clock_start = Duration::ZERO;
    let perf_map =
        GeneratedCode { perf_map: Ok(path.clone()), jitdumps: Vec::new(), clock_start, keeps_frame_pointers: false };
    let jitdump = GeneratedCode { perf_map: Err(NoPerfMap::Missing), jitdumps: vec![path], ..perf_map.clone() };
    for code in [perf_map, jitdump] {
        let mut names = ImageCode::new(&ProcessImage::default(), Some(&code), &OpenFiles);
        for address in [0, 0x1000, u64::MAX] {
            let _ = names.find(AbsAddr(address), Duration::from_secs(1));
        }
        let _ = names.advice();
    }
});
