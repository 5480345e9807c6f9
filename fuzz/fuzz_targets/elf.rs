//! Object files: symbols, notes, imports, user probes (USDT) and allocators.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use memtrace_object::allocators::{self, UserHooks};
use memtrace_object::elf::{self, Elf};
use memtrace_object::symbolize;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(elf) = Elf::parse(bytes) {
        let _ = elf.soname();
        let _ = elf.needed();
        let _ = elf.search_paths();
        let _ = elf.interpreter();
        let _ = elf.is_static();
        let _ = elf.is_executable();
        let _ = elf.file_size();
        let _ = elf::notes::build_id(&elf);
        let _ = elf::dynamic_symbols::addresses(&elf);
        let _ = elf::dynamic_symbols::definitions(&elf, "malloc");
        let _ = elf::function_starts::find(&elf);
        let _ = elf::thread_locals::block(&elf);
        let _ = elf::user_probes::find(&elf, "memtrace");
    }
    let _ = elf::is_go(bytes);
    let _ = elf::is_stripped(bytes);
    let _ = symbolize::find_function(bytes, "main");
    if let Ok(functions) = symbolize::find_functions(bytes, "*a*") {
        let addresses: Vec<_> = functions.iter().map(|function| function.place.virt).collect();
        let _ = allocators::exits_of(bytes, &addresses);
    }
    let _ = symbolize::user_probes(bytes, "memtrace");
    if let (_, Some(candidates)) = allocators::examine(bytes, Path::new("/usr/lib/libfuzz.so"), &UserHooks::default()) {
        let _ = candidates.choose_sites(bytes);
    }
});
