//! Compiles the victims.

#[path = "../harness/build/compile.rs"]
mod compile;

use std::env;
use std::path::PathBuf;

/// Flags for all victims in C. The compiler optimizes as for a release, but keeps all calls. Otherwise it could remove
/// unused blocks, and turn recursion into loops.
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

/// Frame pointers in all functions, so that `bpf_get_stack` finds every caller.
const FRAME_POINTERS: &[&str] = &["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"];
const NO_FRAME_POINTERS: &[&str] = &["-fomit-frame-pointer"];

/// Flags of the victim `spans`: frame pointers, exported functions, and the path of `memtrace.h`, which has the probes
/// that mark spans.
const SPANS: &[&str] =
    &["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-rdynamic", "-I../../memtrace-probes/include"];

/// Name, source file and additional flags of each victim in C.
const VICTIMS: &[(&str, &str, &[&str])] = &[
    ("pairs", "pairs.c", FRAME_POINTERS),
    ("gate", "gate.c", FRAME_POINTERS),
    ("deep", "deep.c", NO_FRAME_POINTERS),
    ("deep-frame-pointers", "deep.c", FRAME_POINTERS),
    ("cold", "cold.c", NO_FRAME_POINTERS),
    ("spans", "spans.c", SPANS),
    ("loop", "loop.c", &["-rdynamic"]),
    ("crowd", "crowd.c", &[]),
];

fn main() {
    println!("cargo::rerun-if-changed=victims");
    println!("cargo::rerun-if-changed=../memtrace-probes/include");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (name, source, flags) in VICTIMS {
        compile::compile("gcc", FLAGS.iter().chain(*flags).chain([source]), &out.join(name));
    }
    compile::compile_go("go_buckets.go", &[], false, &out, "go_buckets");
}
