//! Probe sites in the C libraries of several Debian releases and in other allocators, compared with a golden file and
//! with `objdump`.
//!
//! `cargo xtask setup` fetches the libraries.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use harness::fixtures::{disassembled, image_with, unpacked_libc};
use memtrace_host::target_files::TargetFiles;
use memtrace_object::allocators::{Allocator, FunctionResult, HookedFunction, UserHooks, survey};
use memtrace_object::probe_site::{Cost, GeneralRegister};

/// Directories of the libraries, and their descriptions.
const LIBRARIES: &[(&str, &str)] = &[
    ("bullseye", "glibc of Debian 11"),
    ("bookworm", "glibc of Debian 12"),
    ("trixie", "glibc of Debian 13"),
    ("sid", "glibc of Debian sid"),
    ("musl", "musl of Debian 12"),
    ("jemalloc", "jemalloc of Debian 12"),
    ("tcmalloc", "tcmalloc of Debian 12"),
    ("mimalloc", "mimalloc of Debian 12"),
];

/// Files of the allocators that are installed with the packages of the tests.
const INSTALLED: &[(&str, &str)] = &[
    ("jemalloc", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"),
    ("tcmalloc", "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4"),
    ("mimalloc", "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2"),
];

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn library(name: &str) -> PathBuf {
    let installed = INSTALLED.iter().find(|(installed, _)| *installed == name);
    installed.map_or_else(|| unpacked_libc(name), |(_, path)| PathBuf::from(path))
}

fn allocator(path: &Path) -> Allocator {
    let mut survey = survey(&image_with(path), &UserHooks::default(), &TargetFiles);
    assert_eq!(survey.allocators.len(), 1, "{:?}", survey.examined);
    survey.allocators.remove(0)
}

/// Describes a probe site by the properties that two builds of the same source share, without addresses.
fn line(function: &HookedFunction) -> String {
    let names: Vec<_> = function.functions.iter().map(|row| row.name).collect();
    let site = &function.site;
    let words: Vec<_> = site.instruction.split(' ').map(without_addresses).collect();
    let instruction = words.join(" ");
    let reason = format!("{:?}", site.reason);
    let reason = reason.split('(').next().unwrap_or_default();
    format!(
        "  {:<23}  +{:<2}  {instruction:<16}  {:<8}  {reason}",
        names.join(", "),
        site.offset,
        site.cost.to_string()
    )
}

/// Describes the result sites by their registers, or by the reason why there are none.
fn result_lines(function: &HookedFunction) -> Vec<String> {
    let sites = match &function.results {
        None => return Vec::new(),
        Some(Err(reason)) => {
            let reason = format!("{reason:?}");
            return vec![format!("    no result sites: {}", reason.split('(').next().unwrap_or_default())];
        }
        Some(Ok(sites)) => sites,
    };
    let register = |register: Option<GeneralRegister>| register.map_or(String::from("-"), |found| found.to_string());
    let site = |site: &FunctionResult| {
        format!(
            "    block {:<4} size {:<4} stack -{:<3} saved {:?}",
            register(site.block),
            register(site.size),
            site.lowered,
            site.saved
        )
    };
    let slow = sites.slow.iter().map(|_| String::from("    return of another function"));
    sites.results.iter().chain(&sites.sizes).map(site).chain(slow).collect()
}

/// Replaces the addresses among the operands of an instruction.
fn without_addresses(operands: &str) -> String {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_hexdigit).count();
    let mut parts = operands.split("0x");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match digits(part) {
            4.. => shown.extend(["…", &part[digits(part)..]]),
            _ => shown.extend(["0x", part]),
        }
    }
    shown
}

#[test]
fn probe_sites_in_every_libc_match_the_golden_file() {
    let mut printed = String::new();
    let mut versions = Vec::new();
    for (name, title) in LIBRARIES {
        writeln!(printed, "{title}").expect("a string can be written to");
        for function in allocator(&library(name)).functions {
            writeln!(printed, "{}", line(&function)).expect("a string can be written to");
            for line in result_lines(&function) {
                writeln!(printed, "{line}").expect("a string can be written to");
            }
        }
        let version = package().join("../../target/libc").join(name).join("VERSION");
        versions.push(fs::read_to_string(version).unwrap_or_default().trim().to_owned());
    }
    let path = package().join("tests/golden/probe_sites.txt");
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(printed, expected, "{} is for {versions:?}", path.display());
}

/// Target address of a direct jump or call.
fn target(instruction: &str) -> Option<u64> {
    let words: Vec<_> = instruction.split_whitespace().collect();
    let at =
        words.iter().position(|word| word.starts_with('j') || word.starts_with("call") || word.starts_with("loop"))?;
    u64::from_str_radix(words.get(at + 1)?, 16).ok()
}

#[test]
fn objdump_confirms_instructions_and_branch_targets() {
    for (name, title) in LIBRARIES {
        let path = library(name);
        let code = disassembled(&path);
        let functions = allocator(&path).functions;
        for function in &functions {
            let (entry, chosen) = (function.virt.0, function.virt.0 + function.site.offset);
            let name = function.function().name;
            let shown = code.get(&chosen).unwrap_or_else(|| panic!("{title}: {name}: no instruction at {chosen:#x}"));
            // Versions of objdump differ in the suffix of indirect jumps.
            let mnemonic = |text: &str| match text.split_whitespace().next().unwrap_or_default() {
                "jmpq" => String::from("jmp"),
                word => word.to_owned(),
            };
            assert_eq!(mnemonic(&function.site.instruction), mnemonic(shown), "{title}: {name}");
            let emulated = ["push", "nop", "jmp", "call"].contains(&mnemonic(shown).as_str())
                || shown.starts_with('j') && target(shown).is_some();
            assert_eq!(
                function.site.cost == Cost::Emulated,
                emulated && !shown.contains('*'),
                "{title}: {name}: {shown}"
            );
            assert!(code.range(entry..chosen).all(|(_, before)| target(before).is_none()), "{title}: {name}");
            let Some(Ok(results)) = &function.results else { continue };
            for site in results.results.iter().chain(&results.sizes) {
                let at = entry.wrapping_add(site.offset.0).wrapping_sub(function.file_offset.0);
                let shown = code.get(&at).unwrap_or_else(|| panic!("{title}: {name}: no instruction at {at:#x}"));
                let is_emulated = ["push", "nop"].contains(&mnemonic(shown).as_str()) || shown.starts_with('j');
                assert!(is_emulated && !shown.contains('*'), "{title}: {name}: {shown}");
            }
        }
        for (from, instruction) in &code {
            let Some(to) = target(instruction) else { continue };
            let hit = functions.iter().find(|hit| (hit.virt.0 + 1..=hit.virt.0 + hit.site.offset).contains(&to));
            assert!(hit.is_none(), "{title}: {instruction} at {from:#x} jumps between entry and site of {hit:?}");
        }
    }
}
