//! The limit of open file descriptors.

/// Raises memtrace's limit of open descriptors to the hard limit. A command that was started earlier keeps its own
/// limit.
pub(crate) fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer refers to a whole rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the pointer refers to a whole rlimit.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
        log::debug!("cannot raise the limit of descriptors: {}", std::io::Error::last_os_error());
    }
}
