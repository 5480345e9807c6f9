//! Size filter of the BPF programs.

use aya::maps::Array;
use memtrace_model::Bytes;

use super::bpf::Bpf;
use super::error::KernelError;

/// Sets the size of the smallest recorded block.
pub(super) fn set_min_size(bpf: &mut Bpf, size: Bytes) -> Result<(), KernelError> {
    Array::<_, u64>::try_from(bpf.map_mut("MIN_RECORDED")?)
        .and_then(|mut min_size| min_size.set(0, size.0, 0))
        .map_err(|error| KernelError::from_error("set the minimum size of recorded blocks", &error))
}
