//! Code of functions: the analysis that chooses the instruction of a probe.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use memtrace_object::allocators::{self, UserHooks};

/// A library that defines malloc, calloc, realloc and free, one after the other.
const LIBRARY: &[u8] = include_bytes!("../corpus/elf/allocator.so");

/// Bytes at the start of the first function.
const MARK: &[u8] = b"memtrace fuzz code";

fuzz_target!(|code: &[u8]| {
    let mut library = LIBRARY.to_vec();
    let start = library.windows(MARK.len()).position(|window| window == MARK).expect("the library has the mark");
    let length = code.len().min(library.len() - start).min(4096);
    library[start..start + length].copy_from_slice(&code[..length]);
    let path = Path::new("/usr/lib/libfuzz.so");
    if let (_, Some(candidates)) = allocators::examine(&library[..], path, &UserHooks::default()) {
        let _ = candidates.choose_sites(&library[..]);
    }
});
