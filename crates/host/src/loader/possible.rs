//! Allocators that a later image of a command may map. A launcher, such as `env` or a shell, starts other programs. Probes
//! record such a program from its first instruction only if they are attached before its start.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtrace_model::ALLOCATORS;
use memtrace_object::allocators::{UserHooks, examine};

use super::candidates::{Candidates, Search, Walk};
use crate::procfs::Objects;

/// Variable that names libraries for the dynamic loader.
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Finds the allocators of the `--allocator` options, the allocators of `LD_PRELOAD` assignments in the words of a command, and
/// the known allocators in the cache of the dynamic loader.
#[must_use]
pub fn possible_allocators(argv: &[OsString], objects: &mut Objects, hooks: &UserHooks) -> Candidates {
    let search = Search::from_environment();
    let preloads = argv.iter().flat_map(|word| preloads(word.as_bytes()));
    let named = hooks.allocators.iter().map(|allocator| allocator.object.as_os_str().as_bytes());
    let mut queue: Vec<PathBuf> = preloads.chain(named).flat_map(|name| search.library(name, &[])).collect();
    queue.extend(search.cached(is_known));
    let mut found = Candidates::default();
    Walk::new(&search).visit_all(queue, |path, opened| {
        let (verdict, allocator) = examine(&opened.file, path, hooks);
        // A library without an allocator is only a dependency. It is left out.
        let Some(allocator) = allocator else { return };
        let probed = allocator.choose_sites(&opened.file);
        let object = objects.opened(Path::new("/"), path, opened);
        found.objects.push(Arc::clone(&object));
        found.survey.add(path, verdict, Some(probed), || object);
    });
    found
}

/// Returns true for the file name of a library of a known allocator.
fn is_known(name: &[u8]) -> bool {
    let mut prefixes = ALLOCATORS.iter().flat_map(|allocator| allocator.libraries);
    prefixes.any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// Returns the libraries that a word of a command sets `LD_PRELOAD` to. The word can be a variable for `env`, or a text for a
/// shell.
fn preloads(word: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = word.windows(PRELOAD.len()).enumerate().filter(|(_, part)| *part == PRELOAD);
    starts.flat_map(|(at, _)| list(at, word)).filter(|name| !name.is_empty())
}

/// Returns the names in the value of the assignment at `at`.
fn list(at: usize, word: &[u8]) -> impl Iterator<Item = &[u8]> {
    let value = word.get(at + PRELOAD.len()..).unwrap_or_default();
    let (value, ends): (_, &[u8]) = match value.split_first() {
        Some((b'\'', rest)) => (rest, b"'"),
        Some((b'"', rest)) => (rest, b"\""),
        // A word that begins with the assignment is not for a shell, so the value can contain blanks.
        _ if at == 0 => (value, b"\n;&|()'\""),
        _ => (value, b" \t\n;&|()'\""),
    };
    let end = value.iter().position(|byte| ends.contains(byte)).unwrap_or(value.len());
    value[..end].split(|&byte| byte == b':' || byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preloads_are_found_in_words_and_in_texts_of_shells() {
        let found = |word: &'static str| {
            preloads(word.as_bytes()).map(|name| std::str::from_utf8(name).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(found("LD_PRELOAD=libjemalloc.so.2"), ["libjemalloc.so.2"]);
        assert_eq!(found("LD_PRELOAD=/a b.so:c.so"), ["/a", "b.so", "c.so"]);
        assert_eq!(found("X=1 LD_PRELOAD=a.so prog; LD_PRELOAD='b.so c.so' other"), ["a.so", "b.so", "c.so"]);
        assert_eq!(found("export LD_PRELOAD=\"a.so\"; prog"), ["a.so"]);
        assert_eq!(found("(LD_PRELOAD=a.so)"), ["a.so"]);
        assert_eq!(found("LD_PRELOAD=a.so; prog"), ["a.so"]);
        assert_eq!(found("LD_PRELOAD="), [""; 0]);
        assert_eq!(found("prog"), [""; 0]);
    }

    #[test]
    fn libraries_of_known_allocators_are_known_by_name() {
        for name in ["libjemalloc.so.2", "libmimalloc.so.3", "libmimalloc-secure.so.2", "libtcmalloc_minimal.so.4"] {
            assert!(is_known(name.as_bytes()), "{name}");
        }
        assert!(!is_known(b"libc.so.6") && !is_known(b"libjemallocator.so"));
    }

    #[test]
    fn named_library_is_found_without_an_image_that_maps_it() {
        let allocator = harness::fixtures::GLIBC;
        let argv = [OsString::from("env"), OsString::from(format!("LD_PRELOAD={allocator}"))];
        let found = possible_allocators(&argv, &mut Objects::new(), &UserHooks::default());
        let is_named = |object: &Arc<memtrace_model::Object>| object.path == Path::new(allocator);
        assert!(found.objects.iter().any(is_named), "{:?}", found.objects);
        assert_eq!(found.objects.len(), found.survey.allocators.len());
    }
}
