//! Code and notes of the header and the crate, as compilers, objdump and readelf show them.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned()
}

/// Runs a program and returns its output.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.expect("the program is installed");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is text")
}

/// Compiles a program that includes the header, and returns the executable. A warning is an error.
fn compiled(compiler: &str, name: &str, source: &str, flags: &[&str]) -> String {
    let into = directory().join(name).to_str().expect("the path is text").to_owned();
    let source = format!("tests/programs/{source}");
    let arguments = [&WARNINGS[..], flags, &["-I", "include", &source, "-o", &into]].concat();
    output(compiler, &arguments);
    into
}

/// Returns the library of `functions.rs`, which is compiled once.
fn compiled_rust() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(compile_rust)
}

fn compile_rust() -> String {
    let directory = directory();
    let directory = directory.to_str().expect("the path is text");
    let rustc = env::var("RUSTC").unwrap_or_else(|_| String::from("rustc"));
    let flags = ["--edition", "2021", "-O", "-D", "warnings"];
    let (crate_file, into) = (format!("{directory}/libmemtrace_probes.rlib"), format!("{directory}/functions.so"));
    output(&rustc, &[&flags[..], &["--crate-type", "rlib", "src/lib.rs", "-o", &crate_file]].concat());
    let with_crate = format!("memtrace_probes={crate_file}");
    let source = ["--extern", &with_crate, "tests/programs/functions.rs", "-o", &into];
    output(&rustc, &[&flags[..], &source].concat());
    into
}

/// Returns the instructions of a function before its first return instruction.
fn instructions(file: &str, function: &str) -> Vec<String> {
    let text = output("objdump", &["-d", "--no-show-raw-insn", &format!("--disassemble={function}"), file]);
    let code = text.lines().filter_map(|line| line.split_once(":\t")).map(|(_, code)| code.trim().to_owned());
    code.take_while(|code| !code.starts_with("ret")).collect()
}

/// Returns the number of notes for each probe and its arguments, as readelf prints them.
fn notes(file: &str) -> BTreeMap<(String, String), usize> {
    let text = output("readelf", &["-n", "--wide", file]);
    let values = |name: &'static str| {
        text.lines().filter_map(move |line| Some(line.trim().strip_prefix(name)?.trim().to_owned()))
    };
    assert!(values("Provider:").all(|provider| provider == "memtrace"));
    let mut notes = BTreeMap::new();
    for note in values("Name:").zip(values("Arguments:")) {
        *notes.entry(note).or_default() += 1;
    }
    notes
}

fn expected(counts: &[(&str, &str, usize)]) -> BTreeMap<(String, String), usize> {
    counts.iter().map(|&(name, arguments, count)| ((name.to_owned(), arguments.to_owned()), count)).collect()
}

#[test]
fn headers_compile_without_warnings() {
    for (number, optimization) in ["-O0", "-O1", "-O2", "-Os", "-O3", "-flto"].into_iter().enumerate() {
        for compiler in ["gcc", "clang"] {
            if Command::new(compiler).arg("--version").output().is_err() {
                continue;
            }
            for standard in ["-std=c99", "-std=c11", "-std=gnu17"] {
                compiled(compiler, &format!("all-{compiler}-{number}"), "functions.c", &[optimization, standard]);
            }
        }
        for compiler in ["g++", "clang++"] {
            if Command::new(compiler).arg("--version").output().is_err() {
                continue;
            }
            for standard in ["-std=c++11", "-std=c++14", "-std=c++20"] {
                let flags = [optimization, standard];
                compiled(compiler, &format!("all-{compiler}-{number}"), "scopes.cpp", &flags);
            }
        }
    }
    compiled("gcc", "no-probes", "functions.c", &["-std=c99", "-DMEMTRACE_NO_PROBES"]);
    let none = compiled("g++", "no-probes-cpp", "scopes.cpp", &["-std=c++11", "-DMEMTRACE_NO_PROBES"]);
    assert!(notes(&none).is_empty());
}

#[test]
fn a_probe_is_one_nop() {
    let c = compiled("gcc", "nops", "functions.c", &["-std=c99", "-O2", "-fcf-protection=none"]);
    let rust = compiled_rust();
    for file in [c.as_str(), rust] {
        let (without, with) = (instructions(file, "without"), instructions(file, "with"));
        let nops = |code: &[String]| code.iter().filter(|code| *code == "nop").count();
        assert_eq!((nops(&without), nops(&with)), (0, 1), "{with:?}");
        // Compilers may order the other instructions differently.
        let sorted = |code: Vec<String>| code.into_iter().filter(|code| code != "nop").collect::<BTreeSet<_>>();
        assert_eq!((with.len() - 1, sorted(with)), (without.len(), sorted(without)), "{file}");
    }
    let each = instructions(&c, "each");
    assert_eq!(each.iter().filter(|code| *code == "nop").count(), 10, "{each:?}");
    assert!(each.iter().all(|code| code == "nop" || code.starts_with("mov") || code.starts_with("lea")), "{each:?}");
}

#[test]
fn notes_of_the_header_are_those_of_usdt() {
    let of_c = [
        ("tag_begin", "8@%rdi", 1),
        ("tag_begin_id", "8@%rdi", 1),
        ("tag_end", "", 1),
        ("task_begin", "8@%rdi", 1),
        ("task_end", "", 1),
        ("lock_wait", "8@%rdi 8@%rsi", 1),
        ("lock_acquire", "8@%rdi", 1),
        ("lock_release", "8@%rdi", 1),
        ("event_number", "8@%rdi -8@%rsi", 1),
        ("event_text", "8@%rdi 8@%rsi", 1),
        ("claim", "8@%rdi", 1),
    ];
    let c = compiled("gcc", "notes", "functions.c", &["-std=c99", "-O1"]);
    assert_eq!(notes(&c), expected(&of_c));
    assert!(!output("readelf", &["-n", &c]).contains("Semaphore: 0x0000000000000000"));
}

#[test]
fn notes_of_the_crate_are_those_of_usdt() {
    let notes = notes(compiled_rust());
    let names: Vec<_> = notes.keys().map(|(name, arguments)| (name.as_str(), arguments.as_str())).collect();
    assert_eq!(
        names,
        [
            ("claim", "8@%rdi"),
            ("event_number", "8@%rdi -8@%rsi"),
            ("event_text", "8@%rdi 8@%rsi"),
            ("lock_acquire", "8@%rdi"),
            ("lock_release", "8@%rdi"),
            ("lock_wait", "8@%rdi 8@%rsi"),
            ("tag_begin", "8@%rdi"),
            ("tag_begin_id", "8@%rdi"),
            ("tag_end", ""),
            ("task_begin", "8@%rdi"),
            ("task_end", ""),
        ]
    );
}
