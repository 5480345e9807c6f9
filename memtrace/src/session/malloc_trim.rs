//! How memtrace's own memory is handed back: what a run has needed for a moment is not to count until its end.

/// Has large tables be mapped one by one, so that they grow without a copy and are given back when they are dropped. glibc
/// does so by itself only until the first of them was dropped (mallopt(3), `M_MMAP_THRESHOLD`).
pub(super) fn prepare() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE: libc::c_int = 256 * 1024;
        // SAFETY: the call has no conditions.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    }
}

/// Gives back what is free between what is in use.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call has no conditions.
        unsafe { libc::malloc_trim(0) };
    }
}
