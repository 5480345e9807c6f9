use std::path::PathBuf;

use memtrace_model::{Name, Unnamed};

use super::*;

fn frame(name: &str, object: &str, source: Option<&str>) -> Frame {
    Frame {
        name: if name.is_empty() { Err(Unnamed::NoSymbol) } else { Ok(Name(String::from(name))) },
        object: Some(ObjectName { path: PathBuf::from(object), build_id: None }),
        offset: None,
        address: None,
        location: source.map(|file| Location { file: PathBuf::from(file), line: None }),
        inlined: false,
        by_frame_pointer: false,
    }
}

const SERVICE: &str = "/opt/demo/service";

#[test]
fn std_is_rust_or_cpp_by_the_form_of_the_name() {
    let of_name = |name| of(&frame(name, SERVICE, None));
    assert_eq!(of_name("std::thread::Builder::spawn"), Some(Library::Rust));
    assert_eq!(of_name("std::thread::_State_impl<int>::_M_run()"), Some(Library::Cpp));
    assert_eq!(of_name("std::string demo::text<int>(int)"), None);
    assert_eq!(of_name("__cxa_allocate_exception"), Some(Library::Cpp));
    assert_eq!(of_name("demo::main"), None);
    assert_eq!(of_name(""), None);
}

#[test]
fn source_paths_identify_libraries() {
    let of_source = |file| of(&frame("_M_create", SERVICE, Some(file)));
    assert_eq!(of_source("/rustc/59807616e1fa2540/library/alloc/src/raw_vec/mod.rs"), Some(Library::Rust));
    assert_eq!(of_source("/rustc/59807616e1fa2540/compiler/rustc_driver/src/lib.rs"), None);
    assert_eq!(of_source("/rust/deps/hashbrown-0.15.2/src/raw/mod.rs"), Some(Library::Rust));
    assert_eq!(of_source("/usr/src/rustc-1.63.0/library/std/src/thread/mod.rs"), Some(Library::Rust));
    assert_eq!(
        of_source("/home/me/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/option.rs"),
        Some(Library::Rust)
    );
    assert_eq!(of_source("/usr/include/c++/12/bits/basic_string.tcc"), Some(Library::Cpp));
    assert_eq!(of_source("/home/me/rust/deps/pool.rs"), None);
    assert_eq!(of_source("/home/me/library/src/lib.rs"), None);
}

#[test]
fn object_names_identify_libraries() {
    let of_object = |object| of(&frame("", object, None));
    assert_eq!(of_object("/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"), Some(Library::Cpp));
    assert_eq!(of_object("/usr/lib/llvm-16/lib/libc++.so.1"), Some(Library::Cpp));
    assert_eq!(of_object("/usr/lib/libstd-d1237ef7159db0a2.so"), Some(Library::Rust));
    assert_eq!(of_object("/usr/lib/x86_64-linux-gnu/libc.so.6"), None);
    assert_eq!(of_object(SERVICE), None);
}

#[test]
fn only_start_up_frames_of_the_c_library_are_folded() {
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    let starts = |name, object| starts_in_c(&frame(name, object, None));
    for name in ["__clone3", "__libc_start_main", "__pthread_once_slow"] {
        assert!(starts(name, libc) && starts(name, SERVICE), "{name}");
    }
    for name in ["start_thread", "clone3", "clone", "pthread_once"] {
        assert!(starts(name, libc) && !starts(name, SERVICE), "{name}");
        assert!(starts_in_c(&Frame { object: None, ..frame(name, libc, None) }), "{name}");
    }
    assert!(starts("thread_start", libc) && !starts("thread_start", SERVICE));
    assert!(starts("start", "/lib/ld-musl-x86_64.so.1") && !starts("start", SERVICE));
    assert!(!starts("clone_session", SERVICE) && !starts("std::sys::thread::unix::Thread::new::thread_start", SERVICE));
    assert!(starts("__libc_start_main@@GLIBC_2.34", libc));
    assert!(starts("_start", SERVICE));
    assert!(starts("", libc));
    assert!(starts("", "/lib/ld-musl-x86_64.so.1"));
    assert!(!starts("strdup", libc));
    assert!(!starts("", SERVICE));
    assert!(!starts("", "/opt/demo/libcache.so"));
    assert!(!starts("start_thread_pool", SERVICE));
}

#[test]
fn functions_of_the_program_are_not_in_libraries_of_the_system() {
    let is_own = |name, object| is_of_program(&frame(name, object, None));
    for object in [
        SERVICE,
        "/usr/bin/redis-server",
        "/opt/demo/libcache.so",
        "/usr/local/lib/libcache.so.1",
        "/usr/lib/firefox/libxul.so",
        "/opt/demo/libpythonbridge.so",
        "/usr/lib/postgresql/15/bin/postgres",
    ] {
        assert!(is_own("grow", object) && is_own("", object), "{object}");
    }
    for object in [
        "/usr/lib/x86_64-linux-gnu/libglib-2.0.so.0.7400.6",
        "/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libz.so.1",
        "/usr/lib64/libz.so.1",
        "/usr/lib64/glibc-hwcaps/x86-64-v3/libz.so.1",
        "/lib/ld-musl-x86_64.so.1",
        "/nix/store/abc-glibc-2.40/lib/libc.so.6",
        "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
        "/home/me/.pyenv/versions/3.12.1/lib/libpython3.12.so.1.0",
    ] {
        assert!(!is_own("grow", object) && !is_own("", object), "{object}");
    }
    assert!(!is_own("std::thread::Builder::spawn", SERVICE) && !is_own("operator new(unsigned long)", SERVICE));
    let without_object = |name| Frame { object: None, ..frame(name, SERVICE, None) };
    // Generated code: a name from a perf map, and an address.
    assert!(is_of_program(&without_object("LazyCompile:~serve app.js:7")) && !is_of_program(&without_object("")));
}

#[test]
fn the_main_of_rustc_is_recognized_by_its_callee() {
    let is_rust_main = |name, callee| is_rust_main(&frame(name, SERVICE, None), &frame(callee, SERVICE, None));
    assert!(is_rust_main("main", "std::rt::lang_start::<()>"));
    assert!(!is_rust_main("main", "serve"));
    assert!(!is_rust_main("serve", "std::rt::lang_start::<()>"));
}
