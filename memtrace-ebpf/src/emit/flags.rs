//! Flags of the ring buffer helpers (include/uapi/linux/bpf.h).

/// `BPF_RB_AVAIL_DATA`.
pub const AVAILABLE_DATA: u64 = 0;
/// `BPF_RB_RING_SIZE`.
pub const RING_SIZE: u64 = 1;
/// `BPF_RB_NO_WAKEUP`.
pub const NO_WAKEUP: u64 = 1;
/// `BPF_RB_FORCE_WAKEUP`.
pub const FORCE_WAKEUP: u64 = 2;
