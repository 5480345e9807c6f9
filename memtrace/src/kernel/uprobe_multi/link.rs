//! A link, closed without harm.

use std::os::fd::{IntoRawFd, OwnedFd, RawFd};

use crate::kernel::helper_process as apart;

/// Keeps probes in place. They go when it is dropped, even if this process is killed meanwhile.
pub(in crate::kernel) struct Link(RawFd);

impl From<OwnedFd> for Link {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into_raw_fd())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let close = || {
            // SAFETY: the descriptor was owned, and nobody uses it after this.
            unsafe { libc::close(self.0) };
        };
        // SAFETY: it is one system call.
        unsafe { apart::run(close) };
    }
}
