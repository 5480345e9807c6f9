//! Names of functions: symbol tables, debug information, compressed symbols (`.gnu_debugdata`) and debug links.

#![no_main]

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use memtrace_model::{FileState, Object, PathObject, VirtOffset};
use memtrace_object::ObjectFiles;
use memtrace_object::symbolize::{FindInProcess, FunctionFinder as _, NameFiles, NamesToRead, Symbolizer};
use rustix::fs::{MemfdFlags, memfd_create};

const FINDER: FindInProcess = FindInProcess { path_of: |file| memtrace_host::procfs::descriptor_path(file) };

/// No debug file exists.
#[derive(Debug)]
struct NoFiles;

impl ObjectFiles for NoFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn open_below(&self, _: &Path, _: &Path) -> io::Result<File> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn is_own_executable(&self, _: &File) -> bool {
        false
    }
}

fn memory_with(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("object", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = memory_with(bytes) else { return };
    let handle = memtrace_host::procfs::descriptor_path(&file);
    let object = Object { path: "/usr/lib/libfuzz.so".into(), handle: Some(handle), build_id: None, root: None };
    let symbolizer = Symbolizer::new(&NoFiles, Box::new(FINDER));
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
