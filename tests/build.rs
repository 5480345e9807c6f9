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
    "short_lived",
    "sizes",
    "steady",
    "thread_burst",
    "threads",
];

/// Those of them that are built for musl too.
const MUSL: &[&str] = &["aligned", "exact", "realloc", "threads"];

/// As programs are built for others: optimized, without frame pointers. Calls stay calls.
const RELEASED: &[&str] = &["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"];

/// Victims whose stacks are what matters, in C, for glibc.
const STACKS: &[&str] = &["deep", "deep_fork", "generated", "jumps", "pinned", "plugins", "signals"];

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
    compile("gcc", &library, &["count_shim.c", "books.c", "shared_file.c"], &[], &out.join("libcount_shim.so"));
    // With an unwinder in it, so that none has to be loaded while a stack is taken.
    let shim = ["-std=c11", "-fPIC", "-shared", "-fvisibility=hidden", "-static-libgcc", "-funwind-tables"];
    compile(
        "gcc",
        &shim,
        &["stack_shim.c", "books.c", "places.c", "shared_file.c"],
        &[],
        &out.join("libstack_shim.so"),
    );
    let c = [&["-std=c11"], RELEASED].concat();
    for name in STACKS {
        compile("gcc", &c, &[&format!("{name}.c"), "books.c", "places.c"], &[], &out.join(name));
    }
    let fixed = [&c[..], &["-no-pie"]].concat();
    compile("gcc", &fixed, &["deep.c", "books.c", "places.c"], &[], &out.join("deep.fixed"));
    compile("musl-gcc", &c, &["deep.c", "books.c"], &[], &out.join("deep.musl"));
    let cpp = [&["-std=c++17"], RELEASED].concat();
    compile("g++", &cpp, &["exceptions.cpp"], &[&books], &out.join("exceptions"));
    for (name, depth, room) in [("one", "3", "40"), ("other", "6", "400")] {
        let settings = [format!("-DPLUGIN={name}"), format!("-DDEPTH={depth}"), format!("-DROOM={room}")];
        let flags = ["-std=c11", "-fPIC", "-shared"].into_iter().chain(settings.iter().map(String::as_str));
        let flags: Vec<&str> = flags.chain(RELEASED.iter().copied()).collect();
        compile("gcc", &flags, &["plugin.c"], &[], &out.join(format!("lib{name}.so")));
    }
    released(&out);
    println!("cargo::rustc-link-arg-bins={}", books.display());
}

/// The tests' own profile does not optimize.
fn released(out: &Path) {
    let compiler = env::var("RUSTC").expect("cargo sets RUSTC");
    let flags = ["--edition", "2024", "-C", "opt-level=3", "-C", "force-frame-pointers=no"];
    run(Command::new(&compiler).args(flags).arg("victims/rust_release.rs").arg("-o").arg(out.join("rust_release")));
}

fn compile(compiler: &str, flags: &[&str], sources: &[&str], objects: &[&Path], output: &Path) {
    let mut command = Command::new(compiler);
    command.args(FLAGS).args(flags).args(sources).args(objects).arg("-o").arg(output).current_dir("victims");
    run(&mut command);
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{command:?}: {status}")),
        Err(error) => {
            fail(&format!("{command:?} cannot be run ({error}); the tests need the packages gcc, g++ and musl-tools"))
        }
    }
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    std::process::exit(1)
}
