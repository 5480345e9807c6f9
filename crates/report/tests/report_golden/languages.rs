//! A hand-written profile of a program in Rust and C++, with library frames between user functions and the
//! allocator.

use std::path::PathBuf;
use std::time::Duration;

use memtrace_model::{
    Amount, BlockHistograms, Bytes, Frame, FrameId, LiveChanges, Location, Name, ObjectName, Part, Pid, ProcessProfile,
    Profile, Quantities, Quantity, RunFacts, StackEnd, StackProfile, Unnamed, VirtOffset,
};

const RAW_VEC: &str = "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/alloc/src/raw_vec/mod.rs";
const SERVICE: &str = "/opt/index/index-service";
const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

/// Frames, the outermost first: name, object, and source with its line.
type Stack = &'static [(&'static str, &'static str, Option<(&'static str, u32)>)];

const THREAD: Stack = &[
    ("", LIBC, None),
    ("", LIBC, None),
    ("<std::sys::thread::unix::Thread>::new::thread_start", SERVICE, None),
    ("core::ops::function::FnOnce::call_once{{vtable.shim}}", SERVICE, None),
    ("std::sys::backtrace::__rust_begin_short_backtrace", SERVICE, None),
    ("index_service::run::{{closure}}", SERVICE, Some(("src/main.rs", 43))),
];
const PUSH: Stack = &[
    ("index_service::words::add", SERVICE, Some(("src/words.rs", 12))),
    ("alloc::vec::Vec<T,A>::push", SERVICE, None),
    ("grow_one", SERVICE, Some((RAW_VEC, 340))),
    ("<alloc::alloc::Global as core::alloc::Allocator>::grow", SERVICE, None),
    ("__rustc::__rust_realloc", SERVICE, None),
];
const BOX: Stack = &[
    ("index_service::words::leaf", SERVICE, Some(("src/words.rs", 30))),
    ("alloc::boxed::Box<T>::new", SERVICE, None),
];
const CPP: Stack = &[
    ("index::parse(std::string const&)", SERVICE, Some(("src/parse.cpp", 7))),
    (
        "void std::vector<index::Row, std::allocator<index::Row> >::_M_realloc_append<index::Row>(index::Row&&)",
        SERVICE,
        Some(("/usr/include/c++/12/bits/vector.tcc", 459)),
    ),
    ("allocate", SERVICE, Some(("/usr/include/c++/12/bits/new_allocator.h", 137))),
    ("operator new(unsigned long)", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", None),
];
const ONLY_LIBRARIES: Stack = &[
    ("start_thread", LIBC, None),
    ("<std::thread::Thread>::new", SERVICE, None),
    ("alloc::sync::Arc<T>::new", SERVICE, None),
];

/// Returns a profile of six stacks. The second stack has the lines of the first; the third differs
/// by one library frame.
pub(crate) fn languages() -> Profile {
    let mut profile = Profile {
        run: RunFacts { duration: Duration::from_secs(10), ..RunFacts::default() },
        processes: vec![ProcessProfile {
            total: usage(1_200_000, 63),
            peak: Some(Bytes(1_200_000)),
            ..ProcessProfile::new(Pid(815), "index-service")
        }],
        ..Profile::default()
    };
    add(&mut profile, &[THREAD, PUSH], 0x1000, usage(400_000, 20));
    add(&mut profile, &[THREAD, PUSH], 0x2000, usage(300_000, 15));
    add(&mut profile, &[THREAD, &PUSH[..4]], 0x3000, usage(200_000, 10));
    add(&mut profile, &[THREAD, CPP], 0x4000, usage(150_000, 9));
    add(&mut profile, &[THREAD, BOX], 0x5000, usage(100_000, 5));
    add(&mut profile, &[ONLY_LIBRARIES], 0x6000, usage(50_000, 4));
    profile
}

/// Adds a stack with calls at `offset`. All its blocks are live.
fn add(profile: &mut Profile, parts: &[Stack], offset: u64, usage: Quantities) {
    let frames = parts.iter().copied().flatten().map(|&(name, object, source)| Frame {
        name: if name.is_empty() { Err(Unnamed::NoSymbol) } else { Ok(Name(String::from(name))) },
        object: Some(ObjectName { path: PathBuf::from(object), build_id: None }),
        // Frames without a name are shown by offset, and are the same in every stack.
        offset: Some(VirtOffset(if name.is_empty() { 0x8_9134 } else { offset })),
        address: None,
        location: source.map(|(file, line)| Location { file: PathBuf::from(file), line: Some(line) }),
        inlined: false,
        by_frame_pointer: false,
    });
    let first = profile.frames.len();
    profile.frames.extend(frames);
    let frames = (first..profile.frames.len()).map(FrameId::new).collect();
    profile.stacks.push(StackProfile {
        process: 0,
        part: Part::WHOLE,
        frames,
        end: StackEnd::Complete,
        label: None,
        usage,
        histograms: BlockHistograms::default(),
        live_changes: LiveChanges::default(),
    });
}

fn usage(bytes: u64, count: u64) -> Quantities {
    let amount = Amount { bytes: Bytes(bytes), count };
    Quantities::ZERO
        .with_amount(Quantity::LiveBytes, amount)
        .with_amount(Quantity::AllocBytes, amount)
        .with_free(Amount::default())
}
