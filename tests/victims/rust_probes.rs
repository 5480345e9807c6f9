//! A victim in Rust that sets tags by the probes of the crate `memtrace-probes`, and counts the blocks of each tag.
//!
//! The argument is the number of steps. The victim prints the tags as one line of JSON, like
//! `probes.c`.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::thread;

const THREADS: usize = 4;
const SLOTS: usize = 512;
const NAMES: [&CStr; 4] = [c"net", c"disk", c"cache", c"parser"];
/// Number of tags: names, numbers, and computed names. One more counter is for blocks without a
/// tag.
const TAGS: usize = 3 * NAMES.len();
const LEVELS: u32 = 5;

unsafe extern "C" {
    safe fn ledger_start();
    safe fn wait_for_harness() -> c_int;
    fn print_text(text: *const c_char);
}

#[derive(Default)]
struct Counters([AtomicU64; 4]);

/// Header at the beginning of each block.
#[repr(C)]
struct Header {
    size: usize,
    tag: usize,
}

static COUNTERS: [Counters; TAGS + 1] = [const { Counters([const { AtomicU64::new(0) }; 4]) }; TAGS + 1];
static SLOT: [AtomicPtr<Header>; SLOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(TAGS) };
}

fn count(tag: usize, first: usize, size: usize) {
    COUNTERS[tag].0[first].fetch_add(size as u64, Ordering::Relaxed);
    COUNTERS[tag].0[first + 1].fetch_add(1, Ordering::Relaxed);
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("the size is small")
}

fn release(block: *mut Header) {
    if block.is_null() {
        return;
    }
    // SAFETY: the slot owned the block, which has a header.
    let Header { size, tag } = unsafe { block.read() };
    count(tag, 2, size);
    // SAFETY: the block was allocated with this layout.
    unsafe { dealloc(block.cast(), layout(size)) };
}

fn replace(random: u32) {
    let slot = &SLOT[random as usize % SLOTS];
    let mut block = slot.swap(ptr::null_mut(), Ordering::AcqRel);
    let (tag, mut size) = (CURRENT.get(), 16 + (random >> 12) as usize % 3000);
    if !block.is_null() && random >> 30 == 0 {
        memtrace_probes::claim(block);
        // SAFETY: the slot owned the block, which has a header.
        let old = unsafe { block.read() };
        count(old.tag, 2, old.size);
        size = old.size;
    } else {
        release(block);
        // SAFETY: the size is not zero.
        block = unsafe { alloc(layout(size)) }.cast();
    }
    count(tag, 0, size);
    // SAFETY: the block is this thread's, and large enough.
    unsafe { block.write(Header { size, tag }) };
    release(slot.swap(block, Ordering::AcqRel));
}

fn next(random: &mut u32) -> u32 {
    *random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *random
}

fn work(random: &mut u32, level: u32, tag: usize) {
    let outer = CURRENT.replace(tag);
    replace(next(random));
    if level < LEVELS && next(random) >> 31 == 1 {
        nest(random, level + 1);
    }
    replace(next(random));
    CURRENT.set(outer);
}

fn nest(random: &mut u32, level: u32) {
    let tag = (next(random) >> 8) as usize % TAGS;
    let name = NAMES[tag % NAMES.len()];
    match tag / NAMES.len() {
        0 => {
            let _tag = memtrace_probes::tag(name);
            work(random, level, tag);
        }
        1 => {
            let _tag = memtrace_probes::tag_number(tag as u64);
            work(random, level, tag);
        }
        _ => {
            let computed = memtrace_probes::computed_tag(format_args!("user {tag}"));
            assert!(computed.has_begun(), "memtrace reads the names");
            work(random, level, tag);
        }
    }
}

fn text_of_counters(text: &mut String) {
    let mut separator = '{';
    for (tag, Counters(counters)) in COUNTERS.iter().enumerate() {
        let [alloc_bytes, alloc_count, free_bytes, free_count] =
            [0, 1, 2, 3].map(|number| counters[number].load(Ordering::Relaxed));
        if alloc_count == 0 {
            continue;
        }
        let written = match tag / NAMES.len() {
            0 => write!(text, "{separator}\"{}\"", NAMES[tag].to_str().expect("it is text")),
            1 => write!(text, "{separator}\"{tag}\""),
            2 => write!(text, "{separator}\"user {tag}\""),
            _ => write!(text, "{separator}\"[no tag]\""),
        };
        written.expect("the text has room");
        let (bytes, blocks) = (alloc_bytes - free_bytes, alloc_count - free_count);
        write!(
            text,
            ":{{\"alloc_bytes\":{alloc_bytes},\"alloc_count\":{alloc_count},\"free_bytes\":{free_bytes},\
             \"free_count\":{free_count},\"live_bytes\":{bytes},\"live_count\":{blocks}}}"
        )
        .expect("the text has room");
        separator = ',';
    }
    text.push_str("}\n\0");
}

fn main() -> ExitCode {
    let steps: u32 = env::args().nth(1).and_then(|text| text.parse().ok()).expect("a number of steps is given");
    let barrier: &Barrier = Box::leak(Box::new(Barrier::new(THREADS + 1)));
    for number in 0..THREADS as u32 {
        thread::spawn(move || {
            let mut random = 4711 + 977 * number;
            barrier.wait();
            for _ in 0..steps {
                nest(&mut random, 0);
                replace(next(&mut random));
            }
            barrier.wait();
            barrier.wait();
        });
    }
    // From here on, only counted blocks are allocated.
    let mut text = String::with_capacity(1 << 16);
    ledger_start();
    barrier.wait();
    barrier.wait();
    text_of_counters(&mut text);
    // SAFETY: the text ends with a zero.
    unsafe { print_text(text.as_ptr().cast()) };
    ExitCode::from(u8::from(wait_for_harness() == 0 || memtrace_probes::tag_is_enabled()))
}
