use std::path::PathBuf;

use memtrace_model::{Frame, FrameId, Location, Name, ObjectName, Part, Profile, StackEnd};

use super::*;
use crate::table::COLUMNS;

/// Returns the lines of a stack of `frames`, the outermost first, with at most `columns` characters.
fn written(frames: Vec<Frame>, end: StackEnd, columns: usize) -> Vec<String> {
    let ids = (0..frames.len()).map(FrameId::new).collect();
    let profile = Profile { frames, ..Profile::default() };
    let stack = StackProfile::new(0, Part::WHOLE, ids, end);
    let frames = Frames::new(&profile);
    let mut text = Vec::new();
    write(&lines(&frames, &stack), &frames, &mut TextWriter::new(&mut text, columns)).unwrap();
    String::from_utf8(text).unwrap().lines().map(String::from).collect()
}

/// Returns the lines of a stack without their indentation. `names`: functions, the outermost first.
fn shown(names: &[&str], end: StackEnd) -> Vec<String> {
    let frame = |name: &&str| Frame::new(Ok(Name(String::from(*name))));
    let lines = written(names.iter().map(frame).collect(), end, COLUMNS);
    lines.iter().map(|line| String::from(line.trim_start())).collect()
}

fn frame(name: &str, object: &str, line: Option<u32>) -> Frame {
    Frame {
        object: Some(ObjectName { path: PathBuf::from(object), build_id: None }),
        location: line.map(|line| Location { file: PathBuf::from("src/storage/cache.c"), line: Some(line) }),
        ..Frame::new(Ok(Name(String::from(name))))
    }
}

fn complete(names: &[&str]) -> Vec<String> {
    shown(names, StackEnd::Complete)
}

#[test]
fn libraries_are_folded_at_the_leaf_and_at_the_root() {
    let stack = [
        "start_thread",
        "std::sys::thread::unix::Thread::new::thread_start",
        "core::ops::function::FnOnce::call_once{{vtable.shim}}",
        "demo::run",
        "demo::serve",
        "alloc::vec::Vec<T,A>::reserve",
        "alloc::alloc::realloc",
    ];
    assert_eq!(
        complete(&stack),
        ["… 2 frames of the Rust library", "demo::serve", "demo::run", "… 3 frames of the C and Rust libraries"]
    );
}

/// The names are from a thread with rustc 1.94 and glibc 2.36 with debug information.
#[test]
fn start_up_frames_of_a_rust_thread_are_folded() {
    let stack = [
        "clone3",
        "start_thread",
        "<std::sys::thread::unix::Thread>::new::thread_start",
        "<alloc::boxed::Box<dyn core::ops::function::FnOnce<(), Output = ()> + core::marker::Send> as core::ops::function::FnOnce<()>>::call_once",
        "core::ops::function::FnOnce::call_once{{vtable.shim}}",
        "std::thread::lifecycle::spawn_unchecked::{{closure}}",
        "std::panic::catch_unwind",
        "std::panicking::catch_unwind",
        "__rust_try",
        "std::panicking::catch_unwind::do_call",
        "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once",
        "std::thread::lifecycle::spawn_unchecked::{{closure}}::{{closure}}",
        "std::sys::backtrace::__rust_begin_short_backtrace",
        "demo::main::{{closure}}",
    ];
    assert_eq!(complete(&stack), ["demo::main::{{closure}}", "… 13 frames of the C and Rust libraries"]);
}

#[test]
fn start_up_frames_of_a_pthread_are_folded() {
    assert_eq!(complete(&["clone3", "start_thread", "work", "grab"]), ["grab", "work", "… 2 frames of the C library"]);
}

#[test]
fn start_up_frames_of_a_cpp_thread_are_folded() {
    let stack = [
        "clone3",
        "start_thread",
        "execute_native_thread_routine",
        "std::thread::_State_impl<std::thread::_Invoker<std::tuple<std::packaged_task<char* ()> > > >::_M_run()",
        "__gthread_once",
        "__pthread_once_slow",
        "std::__future_base::_State_baseV2::_M_do_set(std::function<std::unique_ptr<int> ()>*, bool*)",
        "grab(unsigned long)",
    ];
    assert_eq!(complete(&stack), ["grab(unsigned long)", "… 7 frames of the C and C++ libraries"]);
}

#[test]
fn cpp_is_folded_like_rust() {
    let stack = [
        "_start",
        "__libc_start_main_impl",
        "main",
        "std::vector<int, std::allocator<int> >::push_back(int&&)",
        "operator new(unsigned long)",
    ];
    assert_eq!(complete(&stack), ["… 2 frames of the C++ library", "main", "… 2 frames of the C library"]);
}

#[test]
fn single_library_frames_are_not_folded() {
    let stack = ["_start", "main", "core::iter::map", "core::iter::fold", "demo::step", "alloc::alloc::alloc"];
    assert_eq!(
        complete(&stack),
        ["alloc::alloc::alloc", "demo::step", "core::iter::fold", "core::iter::map", "main", "_start"]
    );
}

#[test]
fn the_c_library_is_folded_only_at_the_root() {
    assert_eq!(complete(&["main", "start_thread", "__clone3"]), ["__clone3", "start_thread", "main"]);
}

#[test]
fn the_main_of_rustc_is_folded() {
    let rust = ["_start", "main", "std::rt::lang_start::<()>", "std::rt::lang_start_internal", "demo::main"];
    assert_eq!(complete(&rust), ["demo::main", "… 4 frames of the C and Rust libraries"]);
}

#[test]
fn a_stack_of_library_frames_is_not_folded() {
    let stack = ["start_thread", "std::thread::start", "alloc::alloc::alloc"];
    assert_eq!(complete(&stack), ["alloc::alloc::alloc", "std::thread::start", "start_thread"]);
}

#[test]
fn a_deep_stack_is_cut_after_folding() {
    let deep = |own: usize| {
        let mut names = vec!["_start", "__libc_start_main"];
        names.extend(["demo::walk"].repeat(own));
        names.extend(["alloc::vec::grow", "alloc::alloc::alloc"]);
        complete(&names)
    };
    assert_eq!(deep(21).len(), 23);
    assert!(deep(21).iter().all(|line| !line.contains("more")));
    assert_eq!(deep(22).len(), 23);
    assert_eq!(deep(22)[16], "… 2 more …");
}

#[test]
fn places_are_aligned_after_names_in_wide_characters() {
    let frame = |name: &str| Frame {
        location: Some(Location { file: PathBuf::from("a.c"), line: Some(7) }),
        ..Frame::new(Ok(Name(String::from(name))))
    };
    let lines = written(vec![frame("main"), frame("分配"), frame("gro\u{308}w")], StackEnd::Complete, COLUMNS);
    assert_eq!(lines, ["gro\u{308}w  a.c:7", "分配  a.c:7", "main  a.c:7"].map(|line| format!("        {line}")));
}

#[test]
fn a_cut_hides_no_function_of_the_program() {
    const GLIB: &str = "/usr/lib/x86_64-linux-gnu/libglib-2.0.so.0";
    let mut frames = vec![frame("main", "/usr/bin/demo", None)];
    frames.extend((0..5).map(|_| frame("serve", "/usr/bin/demo", None)));
    // The middle: a function, three calls of a library, a function of a plugin, and two calls of `serve`.
    frames.push(frame("load", "/usr/bin/demo", None));
    frames.extend((0..3).map(|_| frame("g_signal_emit", GLIB, None)));
    frames.push(frame("on_load", "/opt/demo/plugin.so", None));
    frames.extend((0..2).map(|_| frame("serve", "/usr/bin/demo", None)));
    frames.push(frame("parse", "/usr/bin/demo", None));
    frames.push(frame("g_list_foreach", GLIB, None));
    frames.extend((0..16).map(|_| frame("step", "/usr/bin/demo", None)));
    let lines = written(frames, StackEnd::Complete, COLUMNS);
    let names: Vec<_> = lines.iter().map(|line| line.trim_start().split("  ").next().unwrap_or_default()).collect();
    assert_eq!(names[..16], ["step"; 16]);
    // A single line is not cut.
    let middle = ["g_list_foreach", "parse", "… 2 more …", "on_load", "… 3 more …", "load"];
    assert_eq!(names[16..22], middle);
    assert_eq!(names[22..], ["serve", "serve", "serve", "serve", "serve", "main"]);
}

#[test]
fn lines_fit_in_the_width() {
    let long = format!("demo::Map<{}>::insert", "std::pair<int, std::string>, ".repeat(6));
    let frames = || {
        vec![
            frame("main", "/usr/bin/demo", Some(7)),
            frame("demo::a_function_with_a_name_of_forty_letters", "/usr/bin/demo", Some(1234)),
            frame(&long, "/usr/bin/demo", Some(1)),
        ]
    };
    for columns in [40, 60, 80, 100, 132] {
        let lines = written(frames(), StackEnd::Complete, columns);
        assert!(lines.iter().all(|line| columns_of(line) <= columns), "{columns}: {lines:#?}");
        assert!(lines[0].contains("demo::Map<") && lines[0].contains(">::insert") || columns < 60, "{lines:#?}");
        assert!(lines[0].ends_with("cache.c:1") && lines[1].ends_with("cache.c:1234"), "{lines:#?}");
    }
}

#[test]
fn truncated_and_empty_stacks_are_marked() {
    assert_eq!(
        shown(&["demo::serve"], StackEnd::Truncated),
        ["demo::serve", "… (truncated: outer frames were not recorded)"]
    );
    assert_eq!(shown(&[], StackEnd::NotTaken), ["[stack not taken]"]);
}
