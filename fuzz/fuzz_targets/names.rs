//! Names of functions: symbol tables, debug information, compressed symbols (`.gnu_debugdata`) and debug links.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use memtrace_fuzz::{OpenFiles, memory_with};
use memtrace_model::{FileState, Object, PathObject, VirtOffset};
use memtrace_object::symbolize::{FindInProcess, FunctionFinder as _, NameFiles, NamesToRead, Symbolizer};

const FINDER: FindInProcess = FindInProcess { path_of: |file| memtrace_host::procfs::descriptor_path(file) };

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = memory_with(bytes) else { return };
    let handle = memtrace_host::procfs::descriptor_path(&file);
    let object = Object { path: "/usr/lib/libfuzz.so".into(), handle: Some(handle), build_id: None, root: None };
    let symbolizer = Symbolizer::new(&OpenFiles, Box::new(FINDER));
    let _ = symbolizer.name_source(&object);
    let object = PathObject { object: Arc::new(object), file: FileState::Kept };
    let _ = symbolizer.objects_without_debug_info(&[object]);
    for object_debug_info in [false, true] {
        let Ok(object) = file.try_clone() else { return };
        let reads = NamesToRead { object_debug_info, object_symbols: true, debug_file_debug_info: false };
        let files = NameFiles { object, debug_file: None, supplementary: None, reads };
        let _ = FINDER.find(&files, &[0, 0x1000, 0x1234].map(VirtOffset));
    }
});
