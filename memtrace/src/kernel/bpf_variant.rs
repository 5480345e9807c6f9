//! The two builds of the BPF programs, and the choice between them.

use super::bpf_features;

/// BPF objects, built by `cargo xtask bpf`.
static ATOMICS: &[u8] = aya::include_bytes_aligned!(env!("MEMTRACE_BPF_OBJECT"));
static LEGACY: &[u8] = aya::include_bytes_aligned!(env!("MEMTRACE_BPF_OBJECT_LEGACY"));

/// Build of the BPF programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BpfVariant {
    /// Uses atomic exchanges (Linux 5.12) and `bpf_find_vma` (5.17).
    Atomics,
    /// Uses spin locks, and mappings supplied by user space.
    Legacy,
}

impl BpfVariant {
    /// Selects the variant for the running kernel; `has_find_vma` is true if it has `bpf_find_vma`.
    pub(super) fn select(has_find_vma: bool) -> Self {
        if has_find_vma && bpf_features::has_atomic_exchange() { Self::Atomics } else { Self::Legacy }
    }

    pub(super) fn object(self) -> &'static [u8] {
        match self {
            Self::Atomics => ATOMICS,
            Self::Legacy => LEGACY,
        }
    }
}
