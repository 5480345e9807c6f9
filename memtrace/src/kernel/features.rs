//! What the running kernel and the caller's permissions allow, found by trying.

use std::path::Path;

use super::bpf_features;
use super::bpf_variant::Programs;
use super::error::KernelError;
use super::load::Kernel;
use super::process_filter::ProcessFilter;
use super::rings::RingReader;
use super::settings::{self, Options};
use crate::model::Bytes;
use crate::procfs;

/// What the kernel half is tried with: everything that the verifier could refuse is in it.
const TRIAL: Options = Options {
    rings: 2,
    ring_size: Bytes(4096),
    max_depth: super::MAX_FRAMES,
    min_size: Bytes(1),
    max_size: Bytes(u64::MAX - 1),
    start_ns: 0,
    filter: ProcessFilter::Matching(Vec::new()),
    records_allocators: false,
    page_sample: None,
    reclaim: false,
    records_mappings: false,
};

/// Fails where the kernel lacks what nothing can replace, or the caller may not use it.
///
/// # Errors
///
/// [`KernelError::Unsupported`] without BPF, ring buffers, type information or user probes;
/// [`KernelError::Permission`] where the caller may not use them.
pub fn require() -> Result<(), KernelError> {
    btf_is_there()?;
    user_probes()?;
    ring_buffers()
}

/// Makes a ring buffer, and drops it.
///
/// # Errors
///
/// [`KernelError::Unsupported`] where there are none, [`KernelError::Permission`] without `CAP_BPF`.
pub fn ring_buffers() -> Result<(), KernelError> {
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

/// Looks up, in the kernel's type information, every member that the kernel half reads.
///
/// # Errors
///
/// [`KernelError::Unsupported`] where there is none, or one is not in it.
pub fn type_information() -> Result<(), KernelError> {
    btf_is_there()?;
    settings::settings(&TRIAL).map(drop)
}

/// Looks whether there are uprobes.
///
/// # Errors
///
/// [`KernelError::Unsupported`] where there are none.
pub fn user_probes() -> Result<(), KernelError> {
    present(procfs::uprobe_type(), "probe user programs", "it needs CONFIG_UPROBE_EVENTS=y")
}

/// Loads the kernel half with all of its programs. Nothing counts, and it goes when it is dropped.
///
/// # Errors
///
/// [`KernelError`], with the verifier's last words where a program was refused.
pub fn kernel_half() -> Result<Kernel, KernelError> {
    let (mut kernel, _) = Kernel::load(&TRIAL)?;
    kernel.way().load_all()?;
    Ok(kernel)
}

/// Whether the kernel can be asked what a process has mapped (`bpf_find_vma`, Linux 5.17).
#[must_use]
pub fn finds_mappings() -> bool {
    settings::settings(&TRIAL).is_ok_and(|settings| Programs::fitting(settings.vma.known != 0) == Programs::Usual)
}

/// Whether the programs are told which of their probes was hit (`bpf_get_attach_cookie`, Linux 5.15).
#[must_use]
pub fn tells_places() -> bool {
    bpf_features::tells_places()
}

/// Whether the programs can see a process' control groups (`bpf_get_current_ancestor_cgroup_id`, Linux 5.16).
#[must_use]
pub fn tells_groups() -> bool {
    bpf_features::tells_groups()
}

fn btf_is_there() -> Result<(), KernelError> {
    present(procfs::kernel_btf(), "describe its own types", "it needs CONFIG_DEBUG_INFO_BTF=y")
}

fn present(path: &Path, action: &str, reason: &str) -> Result<(), KernelError> {
    if path.exists() {
        return Ok(());
    }
    Err(KernelError::Unsupported {
        action: action.to_owned(),
        reason: format!("{} is missing; {reason}", path.display()),
    })
}
