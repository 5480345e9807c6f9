//! The library cache of the dynamic linker (`/etc/ld.so.cache`) of a container.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memtrace_host::loader;

fuzz_target!(|bytes: &[u8]| {
    let _ = loader::parse_ld_cache(bytes);
});
