//! An allocator in a crate of its own, with methods that are not inlined. It never calls malloc.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

const SIZE: usize = 16 << 20;

struct Memory(UnsafeCell<[u8; SIZE]>);

// SAFETY: no part of the array is allocated twice.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; SIZE]));
static USED: AtomicUsize = AtomicUsize::new(0);
static FREED: AtomicUsize = AtomicUsize::new(0);

/// A bump allocator over one static array; it never reuses memory. It has no fields, so no method needs its receiver.
pub struct Arena;

// SAFETY: blocks have the requested alignment, lie inside the array and never overlap.
unsafe impl GlobalAlloc for Arena {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = MEMORY.0.get().cast::<u8>();
        let mut at = 0;
        let place = |used: usize| {
            let address = (base as usize + used).next_multiple_of(layout.align().max(16));
            at = address - base as usize;
            let end = at.checked_add(layout.size())?;
            (end <= SIZE).then_some(end)
        };
        match USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, place) {
            Ok(_) => base.wrapping_add(at),
            Err(_) => ptr::null_mut(),
        }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the block is not used any more.
            unsafe { block.write(0xee) };
        }
        FREED.fetch_add(layout.size(), Ordering::Relaxed);
    }
}
