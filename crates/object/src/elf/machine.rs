//! Supported architectures.

/// Architecture of an object's code. Both architectures are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// aarch64.
    Aarch64,
}

impl Machine {
    /// The architecture that memtrace runs on.
    pub(crate) const HOST: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };
}
