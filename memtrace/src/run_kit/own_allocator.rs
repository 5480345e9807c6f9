//! Settings of memtrace's own allocator: when it returns free memory to the kernel.

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of `mi_option_e` (mimalloc.h of mimalloc 3): milliseconds before free
/// pages are returned. The bindings do not name it.
const PURGE_DELAY: mi_option_t = 15;

/// Makes the allocator return free pages at once. By default, mimalloc keeps them for a second. In a trace of
/// a machine that ran a compiler, the RSS of memtrace was 172 MiB with this setting, and 212 to 263 MiB without it.
pub(crate) fn return_pages_at_once() {
    // SAFETY: the call has no conditions.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
}

/// Size of the reserve for later allocations, in bytes.
const RESERVE: usize = 16 << 20;

/// Size of a block of the reserve, in bytes.
const RESERVE_BLOCK: usize = 1 << 16;

/// Takes a reserve of memory from the kernel, and makes the allocator keep all free memory from now on. Then
/// allocations need not wait for reclaim when memory is scarce.
pub(crate) fn reserve() {
    // SAFETY: the call has no conditions. A negative delay means never (mimalloc.h).
    unsafe { mi_option_set(PURGE_DELAY, -1) };
    // The write makes the pages resident.
    let blocks: Vec<Vec<u8>> = (0..RESERVE / RESERVE_BLOCK).map(|_| vec![1; RESERVE_BLOCK]).collect();
    drop(std::hint::black_box(blocks));
}

/// Returns free memory between used blocks of the calling thread to the kernel.
pub(crate) fn trim() {
    // SAFETY: the call has no conditions.
    unsafe { mi_collect(true) };
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[test]
    fn number_of_the_option_is_that_of_the_linked_version() {
        // SAFETY: the call has no conditions.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        // No other option has this default (options.c).
        assert_eq!(delay(), 1000);
        return_pages_at_once();
        assert_eq!(delay(), 0);
    }
}
