//! perf_event_open(2). libc has no function for it.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Opens an event without a group. `process`: -1 for all processes. `processor`: -1 for all processors.
///
/// # Safety
///
/// `attributes` must begin as `struct perf_event_attr` does and have their size in its field. Their pointers must be valid
/// until the call returns.
pub(crate) unsafe fn open<A>(attributes: &A, process: libc::pid_t, processor: libc::c_int) -> io::Result<OwnedFd> {
    let no_group: libc::c_int = -1;
    // SAFETY: the caller guarantees valid attributes, and the call keeps no pointer to them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            process,
            processor,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let descriptor = RawFd::try_from(result).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
