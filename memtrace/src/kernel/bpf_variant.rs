//! The two objects of programs that memtrace carries, and which of them this kernel can have.

use super::bpf_features;

/// The programs, built from source by `cargo xtask bpf`.
static USUAL: &[u8] = aya::include_bytes_aligned!(env!("MEMTRACE_BPF_OBJECT"));

/// The same programs, for kernels whose BPF has no atomic instruction but addition, and calls no program back.
static LEGACY: &[u8] = aya::include_bytes_aligned!(env!("MEMTRACE_BPF_OBJECT_LEGACY"));

/// An object of programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Programs {
    /// They exchange words atomically (Linux 5.12), and ask the kernel what a process has mapped (5.17).
    Usual,
    /// They take turns by the kernel's locks, and are told what processes have mapped.
    Plain,
}

impl Programs {
    /// Those to load, `finds_areas` being whether the kernel can be asked what a process has mapped.
    pub(super) fn fitting(finds_areas: bool) -> Self {
        if finds_areas && bpf_features::exchanges() { Self::Usual } else { Self::Plain }
    }

    /// The object.
    pub(super) fn object(self) -> &'static [u8] {
        match self {
            Self::Usual => USUAL,
            Self::Plain => LEGACY,
        }
    }
}
