//! Compiles the programs that are measured. One that does not compile fails the build.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// As a release is compiled, but with frame pointers, so that the kernel's own walk sees every caller, and with every call
/// as it is written: the compiler may drop a block that nobody uses, and turn recursion into a loop.
const FLAGS: &[&str] = &[
    "-std=c11",
    "-O2",
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-builtin",
    "-fno-optimize-sibling-calls",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
];

fn main() {
    println!("cargo::rerun-if-changed=victims");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in ["pairs", "gate"] {
        let mut command = Command::new("gcc");
        command.args(FLAGS).arg(format!("{name}.c")).arg("-o").arg(out.join(name)).current_dir("victims");
        let failure = match command.status() {
            Ok(status) if status.success() => continue,
            Ok(status) => format!("gcc could not compile {name}.c: {status}"),
            Err(error) => format!("gcc cannot be run ({error}); the benchmarks need the package gcc"),
        };
        println!("cargo::error={failure}");
    }
}
