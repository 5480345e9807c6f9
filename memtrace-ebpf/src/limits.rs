//! Capacities and flags that several files share.

/// Number of threads that may be inside an allocator. A thread keeps its slot until it exits.
pub const PENDING_SLOTS: usize = 65_536;

/// Number of stacks that may be taken at the same time.
pub const SCRATCH_SLOTS: usize = 2048;

/// Longest list of return instances of a task (include/linux/uprobes.h).
pub const MAX_URETPROBE_DEPTH: u32 = 64;

/// Insert a map entry only if the key has none (include/uapi/linux/bpf.h).
pub const BPF_NOEXIST: u64 = 1;

/// `bpf_find_vma` found no VMA.
pub const ENOENT: i64 = -2;

/// Lowest kernel address: the upper half, whatever the number of page table levels.
pub const KERNEL_ADDRESSES: u64 = 1 << 63;
