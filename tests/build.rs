//! Compiles the victims that are not Rust. One that does not compile fails the build.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The victims' own code keeps frame pointers and its calls as they are written, so that stacks can be compared by name.
const FLAGS: &[&str] = &[
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-builtin",
    "-fno-optimize-sibling-calls",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
    "-Wl,--build-id",
];

/// Victims in C, for glibc.
const GLIBC: &[&str] = &[
    "aligned",
    "exact",
    "exec",
    "flood",
    "fork",
    "hostile",
    "inlined",
    "peak",
    "realloc",
    "restless",
    "short_lived",
    "sizes",
    "steady",
    "thread_burst",
    "threads",
];

/// Those of them that are built for musl too.
const MUSL: &[&str] = &["aligned", "exact", "realloc", "threads"];

fn main() {
    println!("cargo::rerun-if-changed=victims");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let books = out.join("books.o");
    compile("gcc", &["-std=c11", "-c"], &["books.c"], &[], &books);
    for name in GLIBC {
        compile("gcc", &["-std=c11"], &[&format!("{name}.c"), "books.c"], &[], &out.join(name));
    }
    let weak = ["-std=c11", "-Wl,-z,dynamic-undefined-weak"];
    let old = ["-std=c11", "-Wl,-z,dynamic-undefined-weak", "-nostartfiles"];
    compile("gcc", &old, &["calls.c", "books.c", "old_start.c"], &[], &out.join("calls"));
    compile("musl-gcc", &weak, &["calls.c", "books.c"], &[], &out.join("calls.musl"));
    for name in MUSL {
        compile("musl-gcc", &["-std=c11"], &[&format!("{name}.c"), "books.c"], &[], &out.join(format!("{name}.musl")));
    }
    compile("g++", &["-std=c++17"], &["widgets.cpp"], &[&books], &out.join("widgets"));
    compile("gcc", &["-std=c11", "-nostdlib", "-static", "-fno-stack-protector"], &["bare.c"], &[], &out.join("bare"));
    let library = ["-std=c11", "-fPIC", "-shared", "-fvisibility=hidden"];
    compile("gcc", &library, &["count_shim.c", "books.c"], &[], &out.join("libcount_shim.so"));
    println!("cargo::rustc-link-arg-bins={}", books.display());
}

fn compile(compiler: &str, flags: &[&str], sources: &[&str], objects: &[&Path], output: &Path) {
    let mut command = Command::new(compiler);
    command.args(FLAGS).args(flags).args(sources).args(objects).arg("-o").arg(output).current_dir("victims");
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{compiler} could not compile {sources:?}: {status}")),
        Err(error) => {
            fail(&format!("{compiler} cannot be run ({error}); the tests need the packages gcc, g++ and musl-tools"))
        }
    }
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    std::process::exit(1)
}
