//! Settings of memtrace's own allocator: memory of a short peak is returned to the kernel.

/// Makes glibc map large tables one by one, so that they grow without a copy and are unmapped when they are dropped. By
/// default glibc stops doing so when the first of them is dropped (mallopt(3), `M_MMAP_THRESHOLD`).
pub(super) fn fix_mmap_threshold() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE: libc::c_int = 256 * 1024;
        // SAFETY: the call has no conditions.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    }
}

/// Returns free memory between used blocks to the kernel.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call has no conditions.
        unsafe { libc::malloc_trim(0) };
    }
}
