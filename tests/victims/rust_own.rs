//! A victim in Rust with a custom global allocator that never calls malloc.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

mod recording;

const SIZE: usize = 16 << 20;

/// A bump allocator over one static array; it never reuses memory.
struct Arena {
    memory: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

// SAFETY: no part of the array is allocated twice.
unsafe impl Sync for Arena {}

// SAFETY: blocks have the requested alignment, lie inside the array and never overlap.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.memory.get().cast::<u8>();
        let mut at = 0;
        let place = |used: usize| {
            let address = (base as usize + used).next_multiple_of(layout.align().max(16));
            at = address - base as usize;
            let end = at.checked_add(layout.size())?;
            (end <= SIZE).then_some(end)
        };
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, place) {
            Ok(_) => base.wrapping_add(at),
            Err(_) => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // memtrace learns the registers of the arguments from code that reads them.
        std::hint::black_box((block, layout));
    }
}

#[global_allocator]
static ALLOCATOR: recording::Recording<Arena> =
    recording::Recording(Arena { memory: UnsafeCell::new([0; SIZE]), used: AtomicUsize::new(0) });

fn main() -> ExitCode {
    recording::run(false)
}
