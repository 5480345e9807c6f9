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
    "churn",
    "counted",
    "exact",
    "exec",
    "flood",
    "fork",
    "heaps",
    "hostile",
    "inlined",
    "memcg_limit",
    "pages",
    "peak",
    "process_tree",
    "ranges",
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
const STACKS: &[&str] = &["affinity", "deep", "deep_fork", "generated", "jumps", "plugins", "signals"];

fn main() {
    println!("cargo::rerun-if-changed=victims");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let ledger = out.join("ledger.o");
    compile("gcc", &["-std=c11", "-c"], &["ledger.c"], &[], &ledger);
    for name in GLIBC {
        compile("gcc", &["-std=c11"], &[&format!("{name}.c"), "ledger.c"], &[], &out.join(name));
    }
    compile("gcc", &["-std=c11", "-static"], &["heaps.c", "ledger.c"], &[], &out.join("heaps.static"));
    let weak = ["-std=c11", "-Wl,-z,dynamic-undefined-weak"];
    let old = ["-std=c11", "-Wl,-z,dynamic-undefined-weak", "-nostartfiles"];
    compile("gcc", &old, &["calls.c", "ledger.c", "old_start.c"], &[], &out.join("calls"));
    compile("musl-gcc", &weak, &["calls.c", "ledger.c"], &[], &out.join("calls.musl"));
    for name in MUSL {
        compile("musl-gcc", &["-std=c11"], &[&format!("{name}.c"), "ledger.c"], &[], &out.join(format!("{name}.musl")));
    }
    compile("g++", &["-std=c++17"], &["widgets.cpp"], &[&ledger], &out.join("widgets"));
    compile("gcc", &["-std=c11", "-nostdlib", "-static", "-fno-stack-protector"], &["bare.c"], &[], &out.join("bare"));
    let library = ["-std=c11", "-fPIC", "-shared", "-fvisibility=hidden"];
    compile("gcc", &library, &["count_shim.c", "ledger.c", "shared_file.c"], &[], &out.join("libcount_shim.so"));
    // With an unwinder in it, so that none has to be loaded while a stack is taken.
    let shim = ["-std=c11", "-fPIC", "-shared", "-fvisibility=hidden", "-static-libgcc", "-funwind-tables"];
    compile(
        "gcc",
        &shim,
        &["stack_shim.c", "ledger.c", "places.c", "shared_file.c"],
        &[],
        &out.join("libstack_shim.so"),
    );
    let c = [&["-std=c11"], RELEASED].concat();
    for name in STACKS {
        compile("gcc", &c, &[&format!("{name}.c"), "ledger.c", "places.c"], &[], &out.join(name));
    }
    let fixed = [&c[..], &["-no-pie"]].concat();
    compile("gcc", &fixed, &["deep.c", "ledger.c", "places.c"], &[], &out.join("deep.fixed"));
    compile("musl-gcc", &c, &["deep.c", "ledger.c"], &[], &out.join("deep.musl"));
    let cpp = [&["-std=c++17"], RELEASED].concat();
    compile("g++", &cpp, &["exceptions.cpp"], &[&ledger], &out.join("exceptions"));
    for (name, depth, room) in [("one", "3", "40"), ("other", "6", "400")] {
        let settings = [format!("-DPLUGIN={name}"), format!("-DDEPTH={depth}"), format!("-DROOM={room}")];
        let flags = ["-std=c11", "-fPIC", "-shared"].into_iter().chain(settings.iter().map(String::as_str));
        let flags: Vec<&str> = flags.chain(RELEASED.iter().copied()).collect();
        compile("gcc", &flags, &["plugin.c"], &[], &out.join(format!("lib{name}.so")));
    }
    released(&out);
    allocators(&out, &ledger);
    println!("cargo::rustc-link-arg-bins={}", ledger.display());
}

/// The tests' own profile does not optimize.
fn released(out: &Path) {
    let compiler = env::var("RUSTC").expect("cargo sets RUSTC");
    let flags = ["--edition", "2024", "-C", "opt-level=3", "-C", "force-frame-pointers=no"];
    run(Command::new(&compiler).args(flags).arg("victims/rust_release.rs").arg("-o").arg(out.join("rust_release")));
}

/// The victims of each allocator: how they are linked, and what they are told of it.
fn allocators(out: &Path, ledger: &Path) {
    const JEMALLOC: &[&str] = &["-l:libjemalloc.a", "-lstdc++", "-lm"];
    const TCMALLOC: &[&str] = &["-l:libtcmalloc_minimal.a", "-lstdc++", "-lm"];
    let shared = ["-std=c11", "-fPIC", "-shared"];
    compile("gcc", &shared, &["named.c"], &[], &out.join("libnamed.so"));
    compile("gcc", &["-std=c11"], &["pool.c"], &[ledger], &out.join("pool"));
    let here = format!("-Wl,-rpath,{}", out.display());
    let named = out.join("libnamed.so");
    compile("gcc", &["-std=c11", "-DPREFIX=mine_", &here], &["family.c"], &[ledger, &named], &out.join("family.named"));
    let families: &[(&str, &[&str], &[&str])] = &[
        ("family.static", &["-static"], &[]),
        ("family.static_pie", &["-static-pie"], &[]),
        ("family.stripped", &["-static", "-s"], &[]),
        ("family.jemalloc", &["-DJEMALLOC"], &["-ljemalloc"]),
        ("family.jemalloc_in", &["-DJEMALLOC"], JEMALLOC),
        ("family.jemalloc_static", &["-DJEMALLOC", "-static"], JEMALLOC),
        ("family.tcmalloc", &[], &["-ltcmalloc_minimal"]),
        ("family.tcmalloc_in", &[], TCMALLOC),
        ("family.mimalloc", &["-DMIMALLOC", "-DPREFIX=mi_"], &["-lmimalloc"]),
    ];
    for (name, flags, libraries) in families {
        let flags = [&["-std=c11"], *flags].concat();
        link("gcc", &flags, &["family.c"], &[ledger], libraries, &out.join(name));
    }
    let prefixed = out.join("libje.a");
    prefixed_jemalloc(&prefixed);
    let flags = ["-std=c11", "-DJEMALLOC", "-DPREFIX=je_"];
    link("gcc", &flags, &["family.c"], &[ledger, &prefixed], &["-lstdc++", "-lm"], &out.join("family.je"));
    let static_musl = ["-std=c11", "-static"];
    compile("musl-gcc", &static_musl, &["family.c", "ledger.c"], &[], &out.join("family.musl_static"));
    let operators: &[(&str, &[&str], &[&str])] = &[
        ("operators", &[], &[]),
        ("operators.static", &["-static"], &[]),
        ("operators.jemalloc", &[], &["-ljemalloc"]),
        ("operators.jemalloc_in", &[], JEMALLOC),
        ("operators.jemalloc_static", &["-static"], JEMALLOC),
        ("operators.tcmalloc", &[], &["-ltcmalloc_minimal"]),
        ("operators.tcmalloc_in", &[], TCMALLOC),
        ("operators.mimalloc", &[], &["-lmimalloc"]),
    ];
    for (name, flags, libraries) in operators {
        let flags = [&["-std=c++17"], *flags].concat();
        link("g++", &flags, &["operators.cpp"], &[ledger], libraries, &out.join(name));
    }
}

/// jemalloc as it is built `--with-jemalloc-prefix=je_`: Debian's, with those names.
fn prefixed_jemalloc(output: &Path) {
    const NAMES: &[&str] = &[
        "malloc",
        "calloc",
        "realloc",
        "free",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "malloc_usable_size",
        "mallocx",
        "rallocx",
        "xallocx",
        "sallocx",
        "dallocx",
        "sdallocx",
        "nallocx",
    ];
    let answer = Command::new("gcc").arg("-print-file-name=libjemalloc.a").output();
    let path = answer.map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned()).unwrap_or_default();
    let mut command = Command::new("objcopy");
    command.args(NAMES.iter().map(|name| format!("--redefine-sym={name}=je_{name}"))).arg(path).arg(output);
    run(&mut command);
}

fn compile(compiler: &str, flags: &[&str], sources: &[&str], objects: &[&Path], output: &Path) {
    link(compiler, flags, sources, objects, &[], output);
}

fn link(compiler: &str, flags: &[&str], sources: &[&str], objects: &[&Path], libraries: &[&str], output: &Path) {
    let mut command = Command::new(compiler);
    command.args(FLAGS).args(flags).args(sources).args(objects).args(libraries);
    command.arg("-o").arg(output).current_dir("victims");
    run(&mut command);
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{command:?}: {status}")),
        Err(error) => fail(&format!(
            "{command:?} cannot be run ({error}); the tests need the packages that `cargo xtask setup` installs"
        )),
    }
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    std::process::exit(1)
}
