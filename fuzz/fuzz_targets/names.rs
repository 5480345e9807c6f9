//! Names of functions: symbol tables, debug information, compressed symbols (`.gnu_debugdata`) and debug links.

#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use memtrace_fuzz::{OpenFiles, memory_with, set_file_below};
use memtrace_model::{FileOffset, FileState, Names as _, Object, PathObject, VirtOffset};
use memtrace_object::symbolize::{FindInProcess, FunctionFinder as _, NameFiles, NamesToRead, Symbolizer};

const FINDER: FindInProcess =
    FindInProcess { path_of: |file| memtrace_host::procfs::descriptor_path(file), opens_others: false };

/// Bytes between an object and its debug file. Without them, the object is its own debug file.
const BETWEEN: &[u8] = b"\0debug\0file\0";

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.windows(BETWEEN.len()).position(|window| window == BETWEEN);
    let (object, debug) = at.map_or((bytes, bytes), |at| (&bytes[..at], &bytes[at + BETWEEN.len()..]));
    let (Ok(file), Ok(debug)) = (memory_with(object), memory_with(debug)) else { return };
    set_file_below(debug.try_clone().ok());
    let handle = memtrace_host::procfs::descriptor_path(&file);
    let root = Some(Path::new("/").into());
    let object = Object { path: "/usr/lib/libfuzz.so".into(), handle: Some(handle), build_id: None, root };
    let symbolizer = Symbolizer::new(&OpenFiles, Box::new(FINDER));
    let _ = symbolizer.name_source(&object);
    let object = PathObject { object: Arc::new(object), file: FileState::Kept };
    let _ = symbolizer.frames(&object, &[0, 0x1000, 0x1234].map(FileOffset));
    let _ = symbolizer.objects_without_debug_info(&[object]);
    for object_debug_info in [false, true] {
        let (Ok(object), Ok(debug)) = (file.try_clone(), debug.try_clone()) else { return };
        let reads = NamesToRead { object_debug_info, object_symbols: true, debug_file_debug_info: true };
        let files = NameFiles { object, debug_file: Some(debug), supplementary: None, reads };
        let _ = FINDER.find(&files, &[0, 0x1000, 0x1234].map(VirtOffset));
    }
});
