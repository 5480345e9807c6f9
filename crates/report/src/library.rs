//! Recognizes frames of language libraries, and of code that starts processes and threads.

mod cpp;
mod nesting;
mod rust;

use std::borrow::Cow;
use std::fmt;

use memtrace_model::{Frame, Location, ObjectName};

/// Standard library of a language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Library {
    C,
    Cpp,
    Rust,
}

impl fmt::Display for Library {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::C => "C",
            Self::Cpp => "C++",
            Self::Rust => "Rust",
        })
    }
}

/// Pairs of a prefix and a substring of a source path, with the library that the pair identifies. A path has
/// precedence over the name of the function, because names in debug information often lack their namespace.
const SOURCES: &[(&str, &str, Library)] = &[
    // rustc replaces the build directory of its library with this prefix and the commit of rustc.
    ("/rustc/", "/library/", Library::Rust),
    // Debian's build directory of rustc.
    ("/usr/src/rustc-", "/library/", Library::Rust),
    // Dependencies of the Rust library, mainly hashbrown.
    ("/rust/deps/", "/", Library::Rust),
    // Sources of `rustup component add rust-src`.
    ("", "/lib/rustlib/src/rust/library/", Library::Rust),
    // Headers of libstdc++ and libc++.
    ("", "/include/c++/", Library::Cpp),
];

/// Prefixes of file names of objects, each with the library that it identifies.
const OBJECTS: &[(&str, Library)] = &[
    ("libstd-", Library::Rust),
    ("libstdc++.so", Library::Cpp),
    ("libc++.so", Library::Cpp),
    ("libc++abi.so", Library::Cpp),
];

/// Prefixes of file names of the C library, for glibc and musl.
const C_OBJECTS: &[&str] = &["libc.so", "libc-2.", "libpthread.so", "libpthread-2.", "libc.musl-", "ld-musl-"];

/// Directories of the system's libraries. A distribution can also have the libraries in a subdirectory for the architecture,
/// such as `x86_64-linux-gnu`, or for a processor, below `glibc-hwcaps`.
const SYSTEM_DIRECTORIES: &[&str] = &["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64"];

/// Prefixes of file names of language runtimes. They are in directories of any name.
const RUNTIMES: &[&str] = &[
    "libjvm.so",
    "libpython2.",
    "libpython3",
    "libruby.so",
    "libruby-",
    "libperl.so",
    "libnode.so",
    "libcoreclr.so",
    "libclrjit.so",
    "libmonosgen-",
];

/// Functions of glibc and musl that start processes, constructors and threads. `__pthread_once` is in the list because
/// `std::call_once` of libstdc++ passes through it. Other functions of the C library, such as `strdup`, stay visible,
/// because their allocations are of interest. The names begin with an underscore, which the C standard reserves.
const C_START: &[&str] = &[
    "_start",
    "_start_c",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "_dl_start_user",
    "_dl_init",
    "__clone",
    "__clone3",
    "__pthread_once",
    "__pthread_once_slow",
];

/// Functions that start processes, threads and constructors, but have names that user functions can have too. They
/// count only in objects of the C library, or in an unknown object: `thread_start` of glibc on aarch64, `start`,
/// `start_c11` and `libc_start_main_stage2` of musl, and functions of glibc.
const C_START_IN_OBJECT: &[&str] = &[
    "libc_start_main_stage2",
    "start_thread",
    "clone",
    "clone3",
    "pthread_once",
    "thread_start",
    "start",
    "start_c11",
    "call_init",
];

/// Returns the Rust or C++ library that contains `frame`; `None` for other code.
pub(super) fn of(frame: &Frame) -> Option<Library> {
    let of_source = || frame.location.as_ref().and_then(of_source);
    let of_object = || frame.object.as_ref().and_then(|object| starting_like(object, OBJECTS));
    let of_name = || name(frame).and_then(of_name);
    of_source().or_else(of_object).or_else(of_name)
}

/// Returns true if `frame` is start-up code of the C library, provided that all its callers are start-up code.
/// Distributions strip the C library, so its functions may have no name.
pub(super) fn starts_in_c(frame: &Frame) -> bool {
    match name(frame) {
        // A symbol may carry its version: `__libc_start_main@@GLIBC_2.34`.
        Some(name) => {
            let name = name.split_once('@').map_or(name, |(name, _)| name);
            let has_other_object = frame.object.is_some() && !is_in_c_library(frame);
            C_START.contains(&name) || C_START_IN_OBJECT.contains(&name) && !has_other_object
        }
        None => is_in_c_library(frame),
    }
}

/// Returns true if `frame` is a function of the program: code of its executable, code of a library that is not the
/// system's, or generated code with a name. Libraries and runtimes of languages do not count, wherever their code is.
pub(super) fn is_of_program(frame: &Frame) -> bool {
    let is_known = frame.name.is_ok() || frame.object.is_some();
    is_known && of(frame).is_none() && !is_in_c_library(frame) && !frame.object.as_ref().is_some_and(is_of_system)
}

/// Returns true for a library of the system, and for the runtime of a language.
fn is_of_system(object: &ObjectName) -> bool {
    let file = file(object);
    if RUNTIMES.iter().any(|start| file.starts_with(start)) {
        return true;
    }
    let directory = object.path.parent().unwrap_or(&object.path).to_string_lossy();
    let directory = directory.split_once("/glibc-hwcaps/").map_or(&*directory, |(above, _)| above);
    let is_of_architecture =
        |(above, name): (&str, &str)| SYSTEM_DIRECTORIES.contains(&above) && name.contains("-linux-");
    file.contains(".so")
        && (SYSTEM_DIRECTORIES.contains(&directory) || directory.rsplit_once('/').is_some_and(is_of_architecture))
}

/// Returns true if `frame` is code of the C library.
pub(super) fn is_in_c_library(frame: &Frame) -> bool {
    frame.object.as_ref().is_some_and(|object| C_OBJECTS.iter().any(|start| file(object).starts_with(start)))
}

/// Returns true if `frame` is the `main` that rustc generates. `callee`: function that `frame` calls.
pub(super) fn is_rust_main(frame: &Frame, callee: &Frame) -> bool {
    name(frame) == Some("main") && name(callee).is_some_and(|name| name.starts_with("std::rt::lang_start"))
}

fn name(frame: &Frame) -> Option<&str> {
    frame.name.as_ref().ok().map(|name| name.0.as_str())
}

fn of_source(location: &Location) -> Option<Library> {
    let path = location.file.to_string_lossy();
    let matches = |start: &str, further: &str| path.strip_prefix(start).is_some_and(|rest| rest.contains(further));
    SOURCES.iter().find(|(start, further, _)| matches(start, further)).map(|(_, _, library)| *library)
}

fn of_name(name: &str) -> Option<Library> {
    match cpp::function(name) {
        Some(function) => cpp::is_library(function).then_some(Library::Cpp),
        None if cpp::is_runtime(name) => Some(Library::Cpp),
        None => rust::is_library(name).then_some(Library::Rust),
    }
}

fn starting_like(object: &ObjectName, table: &[(&str, Library)]) -> Option<Library> {
    let file = file(object);
    table.iter().find(|(start, _)| file.starts_with(start)).map(|(_, library)| *library)
}

fn file(object: &ObjectName) -> Cow<'_, str> {
    object.path.file_name().unwrap_or_default().to_string_lossy()
}

#[cfg(test)]
mod tests;
