//! Sites for jumps to the stub in the C libraries of several Debian releases and in other allocators, proved again with the
//! disassembly of `objdump`.
//!
//! `cargo xtask setup` fetches the libraries.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::panic, reason = "a test's tools fail the test")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use harness::fixtures::{disassembled, image_with, unpacked_libc};
use memtrace_host::target_files::TargetFiles;
use memtrace_object::allocators::{Allocator, UserHooks, survey};
use memtrace_object::overlay::site::{
    AllocatorRefusal, AllocatorSites, OverlaySite, SiteKind, SiteRefusal, choose, gadgets, glibc_version,
};

const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4";
const MIMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2";

fn allocator(path: &Path) -> Allocator {
    let mut survey = survey(&image_with(path), &UserHooks::default(), &TargetFiles);
    assert_eq!(survey.allocators.len(), 1, "{:?}", survey.examined);
    survey.allocators.remove(0)
}

fn open(path: &Path) -> File {
    File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sites(path: &Path) -> Result<AllocatorSites, AllocatorRefusal> {
    choose(&allocator(path), &open(path))
}

/// Target address of a direct jump or call.
fn target(instruction: &str) -> Option<u64> {
    let words: Vec<_> = instruction.split_whitespace().collect();
    let is_branch = |word: &&str| ["j", "call", "loop", "xbegin"].iter().any(|start| word.starts_with(start));
    let at = words.iter().position(is_branch)?;
    u64::from_str_radix(words.get(at + 1)?, 16).ok()
}

fn mnemonic(instruction: &str) -> &str {
    instruction.split_whitespace().next().unwrap_or_default()
}

/// Checks with another decoder that each site is one instruction after the entry, and that no direct branch leads into it or
/// to the code before it.
fn prove(path: &Path, code: &BTreeMap<u64, String>, sites: &[OverlaySite]) {
    let file = fs::read(path).expect("the library can be read");
    for site in sites {
        let (entry, at, length) = (site.function.0, site.virt.0, site.original.len() as u64);
        assert!(code.contains_key(&entry) && at > entry, "{}: {site:?}", path.display());
        let after = code.range(at + 1..).next().map(|(address, _)| *address);
        assert!(code.contains_key(&at) && after == Some(at + length), "{}: {site:?}", path.display());
        let start = usize::try_from(site.offset.0).expect("a file fits into memory");
        assert!(file[start..].starts_with(&site.original), "{}: {site:?}", path.display());
        // The instructions before the site write no memory except the frame.
        for (_, instruction) in code.range(entry..at) {
            let to_memory = instruction.ends_with(')') && !instruction.ends_with("(%rsp)");
            let only_reads = ["cmp", "test", "push", "j"].iter().any(|start| instruction.starts_with(start));
            assert!(!to_memory || only_reads, "{}: {}: {instruction}", path.display(), site.name);
        }
    }
    for (from, instruction) in code {
        let Some(to) = target(instruction) else { continue };
        let inside =
            |site: &&OverlaySite| (site.function.0 + 1..site.virt.0 + site.original.len() as u64).contains(&to);
        let hit = sites.iter().find(inside);
        assert!(hit.is_none(), "{}: {instruction} at {from:#x} leads into {hit:?}", path.display());
    }
}

/// Returns the name, the offset from the entry and the mnemonic of each site in a function of C.
fn listed<'a>(code: &'a BTreeMap<u64, String>, found: &'a AllocatorSites) -> Vec<(&'a str, u64, &'a str)> {
    let sites = found.sites.iter().filter(|site| !site.name.starts_with("operator"));
    let with_text = sites.map(|site| {
        let text = code.get(&site.virt.0).map_or("", |text| mnemonic(text));
        (site.name.as_str(), site.virt.0 - site.function.0, text)
    });
    with_text.collect()
}

/// Function, offset of its site from the entry, and mnemonic of the replaced instruction.
type Place<'text> = (&'text str, u64, &'text str);

#[test]
fn glibc_has_sites_in_all_functions() {
    let releases: [(&str, &[Place<'_>]); 2] = [
        (
            "bookworm",
            &[
                ("malloc", 0x0b, "cmpb"),
                ("calloc", 0x2b, "cmpb"),
                ("realloc", 0x14, "cmpb"),
                ("free", 0x13, "mov"),
                ("aligned_alloc", 0x19, "ja"),
            ],
        ),
        (
            "trixie",
            &[
                ("malloc", 0x0b, "cmpb"),
                ("calloc", 0x2d, "cmpb"),
                ("realloc", 0x14, "cmpb"),
                ("free", 0x1b, "mov"),
                ("memalign", 0x1b, "ja"),
            ],
        ),
    ];
    for (release, expected) in releases {
        let path = unpacked_libc(release);
        let (code, found) =
            (disassembled(&path), sites(&path).unwrap_or_else(|refusal| panic!("{release}: {refusal}")));
        assert_eq!(listed(&code, &found), expected, "{release}");
        assert_eq!(found.gaps, [], "{release}");
        let forwards = |site: &&OverlaySite| matches!(site.kind, SiteKind::Realloc { null_forwards: true, .. });
        assert_eq!(found.sites.iter().filter(forwards).map(|site| site.name.as_str()).collect::<Vec<_>>(), ["realloc"]);
        prove(&path, &code, &found.sites);
    }
}

#[test]
fn jemalloc_has_sites_in_its_own_functions() {
    let path = Path::new(JEMALLOC);
    let (code, found) = (disassembled(path), sites(path).unwrap_or_else(|refusal| panic!("{refusal}")));
    let expected = [
        ("malloc", 0x07, "ja"),
        ("calloc", 0x10, "sub"),
        ("realloc", 0x10, "sub"),
        ("free", 0x03, "mov"),
        ("posix_memalign", 0x17, "mov"),
        ("aligned_alloc", 0x14, "mov"),
        ("memalign", 0x14, "mov"),
        ("valloc", 0x11, "mov"),
        ("mallocx", 0x10, "sub"),
        ("rallocx", 0x02, "jmp"),
        ("dallocx", 0x13, "and"),
        ("sdallocx", 0x03, "cmp"),
    ];
    assert_eq!(listed(&code, &found), expected);
    let of_c: Vec<_> = found.gaps.iter().filter(|(name, _)| !name.starts_with("operator")).collect();
    assert_eq!(of_c, [&(String::from("xallocx"), SiteRefusal::Resizes)]);
    assert!(found.gaps.contains(&(String::from("operator new(size)"), SiteRefusal::Throws)), "{:?}", found.gaps);
    prove(path, &code, &found.sites);
}

#[test]
fn other_allocators_and_old_releases_are_refused() {
    assert_eq!(sites(&unpacked_libc("musl")), Err(AllocatorRefusal::Thread));
    assert_eq!(sites(Path::new(TCMALLOC)), Err(AllocatorRefusal::Unsupported("tcmalloc")));
    assert_eq!(sites(Path::new(MIMALLOC)), Err(AllocatorRefusal::Unsupported("mimalloc")));
    // malloc of glibc 2.31 jumps to its hook.
    let old = sites(&unpacked_libc("bullseye"));
    let is_hook = matches!(old, Err(AllocatorRefusal::LacksSite("malloc", SiteRefusal::IndirectJump(_))));
    assert!(is_hook, "{old:?}");
}

#[test]
fn sites_of_untested_releases_are_proved_too() {
    let path = unpacked_libc("sid");
    if let Ok(found) = sites(&path) {
        prove(&path, &disassembled(&path), &found.sites);
    }
}

#[test]
fn releases_have_versions_and_instructions_for_system_calls() {
    for (release, version) in [("bullseye", (2, 31)), ("bookworm", (2, 36)), ("trixie", (2, 41)), ("sid", (2, 43))] {
        let path = unpacked_libc(release);
        assert_eq!(glibc_version(&open(&path)), Some(version), "{release}");
        let found = gadgets(&open(&path)).unwrap_or_else(|| panic!("{release} has no gadgets"));
        let code = disassembled(&path);
        let after_call: Vec<_> = code.range(found.call.0..).take(4).map(|(_, text)| mnemonic(text)).collect();
        assert_eq!(after_call, ["syscall", "cmp", "jae", "ret"], "{release}");
        let of_return: Vec<_> = code.range(found.sigreturn.0..).take(2).map(|(_, text)| text.as_str()).collect();
        assert_eq!(of_return, ["mov    $0xf,%rax", "syscall"], "{release}");
    }
    assert_eq!(glibc_version(&open(Path::new(JEMALLOC))), None);
    assert_eq!(gadgets(&open(Path::new(JEMALLOC))), None);
}
