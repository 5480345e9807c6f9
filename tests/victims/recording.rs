//! Global allocator for victims in Rust, which records the calls of another allocator in the victim's ledger. [`run`]
//! is the work of these victims.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::hint::black_box;
use std::process::ExitCode;
use std::ptr;

/// A block given up by a realloc that has not returned yet: `struct pending_realloc` in ledger.h.
#[repr(C)]
struct PendingRealloc {
    block: *mut c_void,
    size: usize,
    site: *mut c_void,
    tracked: c_int,
}

unsafe extern "C" {
    fn ledger_alloc(site: *mut c_void, block: *mut c_void, size: usize);
    fn ledger_free(block: *mut c_void);
    fn ledger_begin_realloc(block: *mut c_void) -> PendingRealloc;
    fn ledger_end_realloc(site: *mut c_void, old: PendingRealloc, block: *mut c_void, size: usize);
    fn ledger_start();
    fn ledger_print(extra: *const c_char);
    fn wait_for_harness() -> c_int;
    fn malloc(size: usize) -> *mut c_void;
    fn free(block: *mut c_void);
}

/// Records the calls of `A`.
pub(crate) struct Recording<A>(pub(crate) A);

// SAFETY: every call is passed on unchanged; the ledger compares addresses and never dereferences them.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Recording<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc`'s contract.
        let block = unsafe { self.0.alloc(layout) };
        // SAFETY: the site may be null.
        unsafe { ledger_alloc(ptr::null_mut(), block.cast(), layout.size()) };
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        // SAFETY: the site may be null.
        unsafe { ledger_alloc(ptr::null_mut(), block.cast(), layout.size()) };
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the ledger does not dereference the address.
        unsafe { ledger_free(block.cast()) };
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { self.0.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the ledger does not dereference the address.
        let pending = unsafe { ledger_begin_realloc(block.cast()) };
        // SAFETY: the caller keeps `realloc`'s contract.
        let grown = unsafe { self.0.realloc(block, layout, size) };
        // SAFETY: ledger_begin_realloc returned `pending`; the site may be null.
        unsafe { ledger_end_realloc(ptr::null_mut(), pending, grown.cast(), size) };
        grown
    }
}

#[repr(align(64))]
struct Aligned {
    _payload: [u8; 128],
}

fn churn() {
    let mut text = String::new();
    for number in 0..500 {
        text.push_str(&number.to_string());
    }
    drop(black_box(text));
    let mut aligned: Vec<Aligned> = (0..20).map(|byte| Aligned { _payload: [byte; 128] }).collect();
    aligned.shrink_to_fit();
    drop(black_box(aligned));
    drop(black_box(vec![0u8; 100_000]));
}

/// Allocates from the C library instead of the global allocator.
fn from_c() -> Vec<*mut c_void> {
    let mut kept = Vec::with_capacity(100);
    for size in 1..100 {
        // SAFETY: any size may be requested.
        let block = unsafe { malloc(size * 7) };
        // SAFETY: the site may be null.
        unsafe { ledger_alloc(ptr::null_mut(), block, size * 7) };
        if size % 3 == 0 {
            // SAFETY: the ledger does not dereference the address.
            unsafe { ledger_free(block) };
            // SAFETY: the block is from malloc and has no other owner.
            unsafe { free(block) };
        } else {
            kept.push(block);
        }
    }
    kept
}

/// Waits for the harness, works, prints the totals, and waits again. With `c`, also allocates from the C library.
pub(crate) fn run(c: bool) -> ExitCode {
    let early = black_box(vec![1u8; 777]);
    // SAFETY: called once, while there is one thread.
    unsafe { ledger_start() };
    let vectors: Vec<Vec<u64>> = black_box((1..40).map(|length| (0..length).collect()).collect());
    let mut map: HashMap<String, Box<[u8]>> =
        (0..200usize).map(|key| (format!("key number {key}"), vec![0; key].into_boxed_slice())).collect();
    map.retain(|_, value| value.len() % 2 == 0);
    churn();
    let aligned = black_box(Box::new(Aligned { _payload: [7; 128] }));
    let blocks = if c { from_c() } else { Vec::new() };
    drop(early);
    // SAFETY: the text is a C string.
    unsafe { ledger_print(c"".as_ptr()) };
    // SAFETY: reads from standard input only.
    let released = unsafe { wait_for_harness() } != 0;
    black_box((vectors, map, aligned, blocks));
    if released { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
