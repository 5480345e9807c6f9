//! C++ operators that may throw, which are not patched: the stub of a patched function has no unwind table.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

use super::{Allocator, SkipReason};
use crate::elf::{Elf, imports};

/// Symbols of the forms of `operator new` that may throw.
const NEW: [&str; 4] = ["_Znwm", "_Znam", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t"];

/// Starts of the file names of C++ runtimes. They call the operators for the program. An allocator that defines operators depends
/// on such a runtime, so a program without C++ can map one too.
const RUNTIMES: [&str; 3] = ["libstdc++.so", "libc++.so", "libc++abi.so"];

/// Returns true if an allocator has an `operator new` that may throw.
#[must_use]
pub fn are_throwing(allocator: &Allocator) -> bool {
    let functions = allocator.functions.iter().flat_map(|function| &function.symbols).map(String::as_str);
    let throws = allocator.skipped.iter().filter(|skipped| skipped.reason == SkipReason::Throws);
    let mut symbols = functions.chain(throws.map(|skipped| skipped.symbol.as_str()));
    symbols.any(|symbol| symbol.split('@').next().is_some_and(|name| NEW.contains(&name)))
}

/// Returns true if the object in `file` imports an `operator new` that may throw, and is no C++ runtime. Also returns true if the
/// object cannot be read.
#[must_use]
pub fn are_called(file: &File, path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
    let is_runtime = RUNTIMES.iter().any(|runtime| name.starts_with(runtime.as_bytes()));
    let imports = || imports::has_any(&Elf::parse(file)?, &NEW);
    !is_runtime && imports().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn callers_of_operators_are_found_by_their_imports() {
        let are_called = |path: &Path| are_called(&File::open(path).unwrap(), path);
        // The test binary of a Rust program imports none.
        assert!(!are_called(&std::env::current_exe().unwrap()));
        let damaged = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert!(are_called(&damaged));
        let runtime = damaged.with_file_name("libstdc++.so.6");
        assert!(!super::are_called(&File::open(&damaged).unwrap(), &runtime));
    }
}
