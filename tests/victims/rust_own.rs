//! A victim in Rust whose global allocator is its own: it never ends in a malloc.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

mod recording;

const SIZE: usize = 16 << 20;

/// Hands out one piece of memory, from its beginning to its end, and takes nothing back.
struct Arena {
    memory: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

// SAFETY: no piece is handed out twice.
unsafe impl Sync for Arena {}

// SAFETY: pieces are aligned as asked for, lie inside of the memory and never overlap.
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

    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static ALLOCATOR: recording::Recording<Arena> =
    recording::Recording(Arena { memory: UnsafeCell::new([0; SIZE]), used: AtomicUsize::new(0) });

fn main() -> ExitCode {
    recording::run(false)
}
