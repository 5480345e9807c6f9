//! Descriptor of a uprobe_multi link.

use std::os::fd::{IntoRawFd, OwnedFd, RawFd};

use crate::kernel::helper_process;

/// Link that keeps probes attached. Dropping it removes them, even if memtrace is killed during the removal.
pub(in crate::kernel) struct Link(RawFd);

impl From<OwnedFd> for Link {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into_raw_fd())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let close = || {
            // SAFETY: this owns the descriptor, and nothing uses it after this.
            unsafe { libc::close(self.0) };
        };
        // SAFETY: the work is one system call.
        unsafe { helper_process::run(close) };
    }
}
