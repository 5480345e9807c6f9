//! Allocator that counts allocated bytes, for tests and benchmarks of memory use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system allocator with a count of the allocated bytes and their peak. A test or benchmark
/// installs it as the global allocator.
#[derive(Debug)]
pub struct CountingAllocator;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Returns the number of allocated bytes.
pub fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

/// Returns the highest number of allocated bytes so far.
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// Resets the peak to the current number of allocated bytes.
pub fn begin_peak() {
    PEAK.store(allocated(), Ordering::Relaxed);
}
