//! Compiles the victims that cargo does not build.

#[path = "../harness/build/compile.rs"]
mod compile;

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags that keep frame pointers and all calls, so that stacks can be compared by function name.
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
    "account_family",
    "accounts",
    "aligned",
    "block_times",
    "busy_later",
    "busy_threads",
    "call_counts",
    "changes",
    "churn",
    "compute",
    "crowd",
    "exact",
    "exec",
    "exit_together",
    "flood",
    "fork",
    "fuse",
    "growth",
    "heaps",
    "hoard",
    "hostile",
    "inlined",
    "interrupted",
    "jemalloc_threads",
    "memcg_limit",
    "named_threads",
    "old_blocks",
    "pages",
    "patch_realloc",
    "patch_restarts",
    "patch_signals",
    "patch_steps",
    "patch_threads",
    "patch_vfork",
    "peak",
    "prefork",
    "process_tree",
    "ranges",
    "realloc",
    "rusage",
    "sharers",
    "short_lived",
    "sizes",
    "steady",
    "thread_burst",
    "deadlock",
    "thread_churn",
    "thread_ends",
    "thread_exec",
    "thread_usage",
    "threads",
    "transient",
    "trim",
    "waits",
    "cold_archive",
    "whole_pages",
    "working_set",
];

/// Victims that are compiled for musl too.
const MUSL: &[&str] = &["aligned", "exact", "realloc", "threads"];

/// Flags of a release: optimized, and without frame pointers. All calls remain.
const RELEASED: &[&str] = &["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"];

/// Victims in C, for glibc, that test stacks.
const STACKS: &[&str] =
    &["affinity", "deep", "deep_fork", "generated", "jit", "jumps", "no_rows", "plugins", "signals"];

/// Victims in C, for glibc, with the probes of memtrace.h.
const PROBES: &[&str] = &["events", "left", "locks", "nested_tasks", "spans", "thread_lives"];

fn main() {
    println!("cargo::rerun-if-changed=victims");
    println!("cargo::rerun-if-changed=../memtrace-probes/include");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let ledger = out.join("ledger.o");
    compile("gcc", &["-std=c11", "-c"], &["ledger.c"], &[], &ledger);
    for name in GLIBC {
        compile("gcc", &["-std=c11"], &[&format!("{name}.c"), "ledger.c"], &[], &out.join(name));
    }
    for name in ["heaps", "pages"] {
        let output = out.join(format!("{name}.static"));
        compile("gcc", &["-std=c11", "-static"], &[&format!("{name}.c"), "ledger.c"], &[], &output);
    }
    let weak = ["-std=c11", "-Wl,-z,dynamic-undefined-weak"];
    let old = ["-std=c11", "-Wl,-z,dynamic-undefined-weak", "-nostartfiles"];
    compile("gcc", &old, &["calls.c", "ledger.c", "old_start.c"], &[], &out.join("calls"));
    let any = [&old[..], &["-DANY_GLIBC"]].concat();
    compile("gcc", &any, &["thread_exits.c", "ledger.c", "old_start.c"], &[], &out.join("thread_exits"));
    compile("gcc", &["-std=c11", "-static"], &["thread_exits.c", "ledger.c"], &[], &out.join("thread_exits.static"));
    compile("musl-gcc", &weak, &["calls.c", "ledger.c"], &[], &out.join("calls.musl"));
    for name in MUSL {
        compile("musl-gcc", &["-std=c11"], &[&format!("{name}.c"), "ledger.c"], &[], &out.join(format!("{name}.musl")));
    }
    for name in ["widgets", "modules"] {
        compile("g++", &["-std=c++17"], &[&format!("{name}.cpp")], &[&ledger], &out.join(name));
    }
    let header = ["-Wpedantic", "-I../../memtrace-probes/include"];
    compile("gcc", &[&header[..], &["-std=c99"]].concat(), &["probes.c"], &[&ledger], &out.join("probes"));
    let cpp = [&header[..], &["-std=c++11", "-xc++", "probes.c", "-xnone"]].concat();
    compile("g++", &cpp, &[], &[&ledger], &out.join("probes.cpp"));
    for name in PROBES {
        let flags = ["-std=gnu11", "-I../../memtrace-probes/include"];
        compile("gcc", &flags, &[&format!("{name}.c")], &[&ledger], &out.join(name));
    }
    let cpp = ["-std=gnu++17", "-I../../memtrace-probes/include"];
    compile("g++", &cpp, &["thrown.cpp"], &[&ledger], &out.join("thrown"));
    compile_tail_calls(&out, &ledger);
    compile_servers(&out, &ledger);
    let bare = ["-std=gnu11", "-nostdlib", "-static", "-fno-stack-protector"];
    for (name, flags) in [("bare", &[][..]), ("bare.go", &["-DGO"]), ("bare.32", &["-m32"])] {
        compile("gcc", &[&bare[..], flags].concat(), &["bare.c"], &[], &out.join(name));
    }
    let library = ["-std=c11", "-fPIC", "-shared", "-fvisibility=hidden"];
    compile("gcc", &library, &["count_shim.c", "ledger.c", "shared_file.c"], &[], &out.join("libcount_shim.so"));
    compile("gcc", &library, &["clock_shim.c"], &[], &out.join("libclock_shim.so"));
    // The unwinder is linked statically, so that unwinding never loads a library.
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
    let without_tables = ["-nostdlib", "-g0", "-fno-asynchronous-unwind-tables", "-Wl,--no-ld-generated-unwind-info"];
    for (name, flags) in [("no_table", &[][..]), ("no_table.omitted", &["-fomit-frame-pointer"])] {
        let shared = [&["-std=c11", "-fPIC", "-shared"], &without_tables[..], flags].concat();
        let object = out.join(format!("lib{name}.so"));
        compile("gcc", &shared, &["no_table_library.c"], &[], &object);
        compile("gcc", &c, &["no_table.c", "ledger.c"], &[&object], &out.join(name));
    }
    let fixed = [&c[..], &["-no-pie"]].concat();
    compile("gcc", &fixed, &["deep.c", "ledger.c", "places.c"], &[], &out.join("deep.fixed"));
    compile("musl-gcc", &c, &["deep.c", "ledger.c"], &[], &out.join("deep.musl"));
    // memtrace does not trace a program without a function that frees.
    let in_one_file = [&c[..], &["-static", "-Wl,--undefined=free"]].concat();
    compile("musl-gcc", &in_one_file, &["deep.c", "ledger.c"], &[], &out.join("deep.musl_static"));
    let cpp = [&["-std=c++17"], RELEASED].concat();
    compile("g++", &cpp, &["exceptions.cpp"], &[&ledger], &out.join("exceptions"));
    for (name, depth, room) in [("one", "3", "40"), ("other", "6", "400")] {
        let settings = [format!("-DPLUGIN={name}"), format!("-DDEPTH={depth}"), format!("-DROOM={room}")];
        let flags = ["-std=c11", "-fPIC", "-shared"].into_iter().chain(settings.iter().map(String::as_str));
        let flags: Vec<&str> = flags.chain(RELEASED.iter().copied()).collect();
        compile("gcc", &flags, &["plugin.c"], &[], &out.join(format!("lib{name}.so")));
    }
    compile_rust(&out, &ledger);
    compile_allocator_victims(&out, &ledger);
    compile_samplers(&out, &ledger);
    compile_go(&out);
    println!("cargo::rustc-link-arg-bins={}", ledger.display());
}

/// Compiles the victim with tail calls, with and without tables of exceptions, and its library.
fn compile_tail_calls(out: &Path, ledger: &Path) {
    let library = out.join("libtail_target.so");
    compile("gcc", &["-std=c11", "-fPIC", "-shared"], &["tail_target.c"], &[], &library);
    let here = format!("-Wl,-rpath,{}", out.display());
    let flags = [
        "-std=gnu++17",
        "-I../../memtrace-probes/include",
        "-O2",
        "-fomit-frame-pointer",
        "-foptimize-sibling-calls",
        "-fno-devirtualize-speculatively",
        &here,
    ];
    for (name, settings) in [("tail_calls", &[][..]), ("tail_calls.whole", &["-DWHOLE", "-fno-exceptions"])] {
        compile("g++", &[&flags[..], settings].concat(), &["tail_calls.cpp"], &[ledger, &library], &out.join(name));
    }
}

/// Compiles the copies of servers. The copy of MariaDB has the build ID of a real server, and its table of classes has
/// the same address.
fn compile_servers(out: &Path, ledger: &Path) {
    let optimized = ["-std=gnu11", "-O2", "-foptimize-sibling-calls"];
    compile("gcc", &optimized, &["skynet.c"], &[ledger], &out.join("skynet"));
    let layout =
        ["-Wl,--build-id=0x439da8d94412de2c7eb3e2c5554bc0f31f438dc3", "-Wl,--section-start=pfs_classes=0x2159e20"];
    compile("gcc", &[&optimized[..], &layout].concat(), &["mariadb.c"], &[ledger], &out.join("mariadb"));
}

/// Compiles the victims in Rust with optimization, which the profile of the tests lacks.
fn compile_rust(out: &Path, ledger: &Path) {
    let compiler = env::var("RUSTC").expect("cargo sets RUSTC");
    let flags = ["--edition", "2024", "-C", "opt-level=3", "-C", "force-frame-pointers=no"];
    compile::run(
        Command::new(&compiler).args(flags).arg("victims/rust_release.rs").arg("-o").arg(out.join("rust_release")),
    );
    let library = out.join("libvictim_arena.rlib");
    let crate_of = ["--crate-type", "rlib", "--crate-name", "victim_arena", "victims/rust_arena.rs"];
    compile::run(Command::new(&compiler).args(flags).args(crate_of).arg("-o").arg(&library));
    let mut direct = Command::new(&compiler);
    direct.args(flags).arg("victims/rust_direct.rs").arg("-C").arg(format!("link-arg={}", ledger.display()));
    compile::run(
        direct
            .arg("--extern")
            .arg(format!("victim_arena={}", library.display()))
            .arg("-o")
            .arg(out.join("rust_direct")),
    );
}

/// Compiles the victims in Go.
fn compile_go(out: &Path) {
    let victims: &[(&str, &str, &[&str], bool)] = &[
        ("go_heap", "go_heap.go", &[], false),
        ("go_heap.stripped", "go_heap.go", &["-ldflags=-s -w"], false),
        ("go_heap.pie", "go_heap.go", &["-buildmode=pie"], false),
        ("go_plain", "go_plain.go", &[], false),
        ("go_totals", "go_totals.go", &[], false),
        ("go_totals.pie", "go_totals.go", &["-buildmode=pie", "-ldflags=-s -w"], false),
        ("go_cgo", "go_cgo.go", &[], true),
    ];
    for (name, source, flags, has_cgo) in victims {
        compile::compile_go(source, flags, *has_cgo, out, name);
    }
}

/// Links the victims with each allocator, dynamically and statically.
fn compile_allocator_victims(out: &Path, ledger: &Path) {
    const JEMALLOC: &[&str] = &["-l:libjemalloc.a", "-lstdc++", "-lm"];
    const TCMALLOC: &[&str] = &["-l:libtcmalloc_minimal.a", "-lstdc++", "-lm"];
    let shared = ["-std=c11", "-fPIC", "-shared"];
    compile("gcc", &shared, &["prefixed.c"], &[], &out.join("libprefixed.so"));
    compile("gcc", &["-std=c11"], &["pool.c"], &[ledger], &out.join("pool"));
    let here = format!("-Wl,-rpath,{}", out.display());
    let prefixed_library = out.join("libprefixed.so");
    compile(
        "gcc",
        &["-std=c11", "-DPREFIX=mine_", &here],
        &["family.c"],
        &[ledger, &prefixed_library],
        &out.join("family.prefixed"),
    );
    let families: &[(&str, &[&str], &[&str])] = &[
        ("family.static", &["-static"], &[]),
        ("family.static_pie", &["-static-pie"], &[]),
        ("family.stripped", &["-static", "-s"], &[]),
        ("family.stripped_pie", &["-static-pie", "-s"], &[]),
        ("family.jemalloc", &["-DJEMALLOC"], &["-ljemalloc"]),
        ("family.jemalloc_in", &["-DJEMALLOC"], JEMALLOC),
        ("family.jemalloc_static", &["-DJEMALLOC", "-static"], JEMALLOC),
        ("family.tcmalloc", &[], &["-ltcmalloc_minimal"]),
        ("family.tcmalloc_in", &[], TCMALLOC),
        ("family.mimalloc", &["-DMIMALLOC", "-DPREFIX=mi_"], &["-lmimalloc"]),
    ];
    for (name, library) in [("tcmalloc", "-ltcmalloc_minimal"), ("mimalloc", "-lmimalloc")] {
        let output = out.join(format!("whole_pages.{name}"));
        link("gcc", &["-std=c11"], &["whole_pages.c"], &[ledger], &[library], &output);
    }
    for (name, flags, libraries) in families {
        let flags = [&["-std=c11"], *flags].concat();
        link("gcc", &flags, &["family.c"], &[ledger], libraries, &out.join(name));
    }
    let prefixed = out.join("libje.a");
    rename_jemalloc(&prefixed);
    let flags = ["-std=c11", "-DJEMALLOC", "-DPREFIX=je_"];
    link("gcc", &flags, &["family.c"], &[ledger, &prefixed], &["-lstdc++", "-lm"], &out.join("family.je"));
    let static_musl = ["-std=c11", "-static"];
    for name in ["family", "short_lived"] {
        let output = out.join(format!("{name}.musl_static"));
        compile("musl-gcc", &static_musl, &[&format!("{name}.c"), "ledger.c"], &[], &output);
    }
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

/// Compiles the victim whose allocator samples, and the one with a library that samples.
fn compile_samplers(out: &Path, ledger: &Path) {
    let allocators: &[(&str, &str, &[&str])] = &[
        ("sampled.jemalloc", "-DRESIZES_IN_PLACE", &["-l:libjemalloc.a", "-lstdc++", "-lm"]),
        ("sampled.tcmalloc", "-DSIZE_CLASSES", &["-l:libtcmalloc.a", "-lunwind", "-lstdc++", "-lm"]),
    ];
    for (name, flag, libraries) in allocators {
        link("gcc", &["-std=gnu11", *flag], &["sampled.c"], &[ledger], libraries, &out.join(name));
    }
    let whole = ["-Wl,--whole-archive", "-l:libjemalloc_pic.a", "-Wl,--no-whole-archive", "-lstdc++", "-lm"];
    link("gcc", &["-shared"], &[], &[], &whole, &out.join("libsampling.so"));
    let both = ["-std=gnu11", "-DPROVIDER=otel_memory"];
    let sources = ["sampled.c", "sample_probes.c"];
    link("gcc", &both, &sources, &[ledger], allocators[0].2, &out.join("sampled.both"));
    let libraries: &[(&str, &[&str])] = &[
        ("sampled.otel_memory", &["-DPROVIDER=otel_memory"]),
        ("sampled.ddheap", &["-DPROVIDER=ddheap", "-DSHARES_SEMAPHORE", "-DIN_MEMORY"]),
        ("sampled.stripped", &["-DPROVIDER=otel_memory", "-static", "-s"]),
    ];
    for (name, flags) in libraries {
        let flags = [&["-std=gnu11"], *flags].concat();
        link("gcc", &flags, &["sampled.c", "sample_probes.c"], &[ledger], &["-lm"], &out.join(name));
    }
}

/// Renames the functions of Debian's jemalloc as `--with-jemalloc-prefix=je_` does.
fn rename_jemalloc(output: &Path) {
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
    let printed = Command::new("gcc").arg("-print-file-name=libjemalloc.a").output();
    let path = printed.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let mut command = Command::new("objcopy");
    command.args(NAMES.iter().map(|name| format!("--redefine-sym={name}=je_{name}"))).arg(path).arg(output);
    compile::run(&mut command);
}

fn compile(compiler: &str, flags: &[&str], sources: &[&str], objects: &[&Path], output: &Path) {
    link(compiler, flags, sources, objects, &[], output);
}

fn link(compiler: &str, flags: &[&str], sources: &[&str], objects: &[&Path], libraries: &[&str], output: &Path) {
    let before = FLAGS.iter().chain(flags).chain(sources).map(|word| OsStr::new(*word));
    let objects = objects.iter().map(|path| path.as_os_str());
    let libraries = libraries.iter().map(|word| OsStr::new(*word));
    compile::compile(compiler, before.chain(objects).chain(libraries), output);
}
