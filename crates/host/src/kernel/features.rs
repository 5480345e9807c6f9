//! Features of the running kernel and permissions of the caller, detected by trial, from BTF, or by a file's presence.

use std::path::Path;

use memtrace_model::{Bytes, MAX_FRAMES, printable};

use super::error::KernelError;
use super::load::Kernel;
use super::process_filter::ProcessFilter;
use super::rings::RingReader;
use super::settings::{self, Options};
use crate::procfs;

/// Returns options that enable all code that the verifier could refuse.
fn trial() -> Options {
    Options {
        rings: 2,
        ring_size: Bytes(4096),
        max_depth: MAX_FRAMES as u32,
        max_size: Bytes(u64::MAX - 1),
        filter: ProcessFilter::Matching(Vec::new()),
        ..Options::default()
    }
}

/// First release with `bpf_find_vma`.
pub const FIND_VMA: (u32, u32) = (5, 17);

/// Checks the features and permissions that every trace needs.
///
/// # Errors
///
/// [`KernelError::Unsupported`] without BPF, ring buffers, type information or uprobes; [`KernelError::TooOld`];
/// [`KernelError::Permission`] if the caller may not use them.
pub fn require() -> Result<(), KernelError> {
    btf()?;
    // Search older kernels only, because a search in BTF takes ten milliseconds. Kernels from 5.17 on have `bpf_find_vma`, and
    // a distribution may have added it to an older one.
    if procfs::kernel_release().and_then(|release| procfs::kernel_version(&release)).is_none_or(|it| it < FIND_VMA) {
        settings::find_vma()?;
    }
    uprobes()?;
    ring_buffers()
}

/// Creates and drops a ring buffer.
///
/// # Errors
///
/// [`KernelError::Unsupported`] if the kernel has none, [`KernelError::Permission`] without `CAP_BPF`.
pub fn ring_buffers() -> Result<(), KernelError> {
    match RingReader::create(Bytes(4096)) {
        Ok(_) => Ok(()),
        // The kernel answers an unknown map type with EINVAL.
        Err(KernelError::Failed { action, reason }) => Err(KernelError::Unsupported {
            action,
            reason: format!("{reason}; ring buffers require CONFIG_BPF_SYSCALL=y"),
        }),
        Err(other) => Err(other),
    }
}

/// Checks that the kernel's BTF has all struct members that the BPF programs read.
///
/// # Errors
///
/// [`KernelError::Unsupported`] if the kernel has no type information, or lacks a required member.
pub fn type_information() -> Result<(), KernelError> {
    btf()?;
    match settings::settings(&trial()) {
        // `settings` looks up the structs before `bpf_find_vma`.
        Ok(_) | Err(KernelError::TooOld { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Checks if the kernel has uprobes.
///
/// # Errors
///
/// [`KernelError::Unsupported`] if it does not.
pub fn uprobes() -> Result<(), KernelError> {
    present(procfs::uprobe_type(), "use uprobes", "it requires CONFIG_UPROBE_EVENTS=y")
}

/// Loads all BPF programs. They record nothing, because the recording gate stays closed.
///
/// # Errors
///
/// [`KernelError`], with the verifier's message if a program is refused.
pub fn load_programs() -> Result<Kernel, KernelError> {
    let (mut kernel, _) = Kernel::load(&trial())?;
    kernel.attach_backend().load_all()?;
    Ok(kernel)
}

/// Returns true if the BPF programs can read the cgroups of a process.
#[must_use]
pub fn has_cgroups() -> bool {
    settings::settings(&trial()).is_ok_and(|settings| settings.cgroup.known != 0)
}

fn btf() -> Result<(), KernelError> {
    present(procfs::kernel_btf(), "describe its own types", "it requires CONFIG_DEBUG_INFO_BTF=y")
}

fn present(path: &Path, action: &str, reason: &str) -> Result<(), KernelError> {
    if path.exists() {
        return Ok(());
    }
    Err(KernelError::Unsupported {
        action: action.to_owned(),
        reason: format!("{} is missing; {reason}", printable(path)),
    })
}
