//! Compiles the programs that are measured. One that does not compile fails the build.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// As a release is compiled, but with every call as it is written: the compiler may drop a block that nobody uses, and turn
/// recursion into a loop.
const FLAGS: &[&str] = &[
    "-std=c11",
    "-O2",
    "-g",
    "-fno-builtin",
    "-fno-optimize-sibling-calls",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
];

/// With these the kernel's own walk sees every caller.
const FRAME_POINTERS: &[&str] = &["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"];
const NO_FRAME_POINTERS: &[&str] = &["-fomit-frame-pointer"];

/// What is compiled: the program, its source, and more flags.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("pairs", "pairs.c", FRAME_POINTERS),
    ("gate", "gate.c", FRAME_POINTERS),
    ("deep", "deep.c", NO_FRAME_POINTERS),
    ("deep-frame-pointers", "deep.c", FRAME_POINTERS),
    ("cold", "cold.c", NO_FRAME_POINTERS),
];

fn main() {
    println!("cargo::rerun-if-changed=victims");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (name, source, flags) in PROGRAMS {
        let mut command = Command::new("gcc");
        command.args(FLAGS).args(*flags).arg(source).arg("-o").arg(out.join(name)).current_dir("victims");
        let failure = match command.status() {
            Ok(status) if status.success() => continue,
            Ok(status) => format!("gcc could not compile {source}: {status}"),
            Err(error) => format!("gcc cannot be run ({error}); the benchmarks need the package gcc"),
        };
        println!("cargo::error={failure}");
    }
}
