//! Capacities and flags that several files share.

/// Number of slots for pending calls. A thread keeps its slot until it exits or calls exec.
pub const PENDING_SLOTS: usize = 65_536;

/// Number of slots of scratch memory: the maximum number of concurrent stack walks.
pub const SCRATCH_SLOTS: usize = 2048;

/// Maximum length of the list of return instances of a task (include/linux/uprobes.h).
pub const MAX_URETPROBE_DEPTH: u32 = 64;

/// Flag of a map update: insert an entry only if the key has none (include/uapi/linux/bpf.h).
pub const BPF_NOEXIST: u64 = 1;

/// Result of `bpf_find_vma` if the address has no VMA.
pub const ENOENT: i64 = -2;

/// Start of the upper half of the address space. All kernel addresses are there, for any number of page table levels.
pub const KERNEL_ADDRESSES: u64 = 1 << 63;
