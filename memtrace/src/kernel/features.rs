//! What the running kernel and the caller's permissions allow.

use std::path::Path;

use super::btf;
use super::error::KernelError;
use super::rings::RingReader;
use crate::model::Bytes;

/// The capabilities that tracing needs, by number (include/uapi/linux/capability.h).
pub const CAPABILITIES: &[(&str, u32)] = &[("CAP_BPF", 39), ("CAP_PERFMON", 38)];
/// The capability that includes them.
pub const CAP_SYS_ADMIN: u32 = 21;

/// Fails where the kernel lacks what nothing can replace, or the caller may not use it.
///
/// # Errors
///
/// [`KernelError::Unsupported`] without BPF, ring buffers, type information or user probes;
/// [`KernelError::Permission`] where the caller may not use them.
pub fn require() -> Result<(), KernelError> {
    let missing = |path: &str, action: &str, reason: &str| {
        if Path::new(path).exists() {
            return Ok(());
        }
        Err(KernelError::Unsupported { action: action.to_owned(), reason: format!("{path} is missing; {reason}") })
    };
    missing(btf::PATH, "describe its own types", "it needs CONFIG_DEBUG_INFO_BTF=y")?;
    missing("/sys/bus/event_source/devices/uprobe/type", "probe user programs", "it needs CONFIG_UPROBE_EVENTS=y")?;
    match RingReader::create(Bytes(4096)) {
        Ok(_) => Ok(()),
        // The kernel answers an unknown map type with EINVAL.
        Err(KernelError::Failed { action, reason }) => Err(KernelError::Unsupported {
            action,
            reason: format!("{reason}; ring buffers need Linux 5.8 and CONFIG_BPF_SYSCALL=y"),
        }),
        Err(other) => Err(other),
    }
}
