//! What user space tells the programs: the settings before they are loaded, the gate afterwards.

use core::mem::size_of;

use super::{CountsLayout, ReclaimLayout};

/// What user space tells the programs before they are loaded. The kernel takes these as constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Settings {
    /// The monotonic clock at which ticks begin, in nanoseconds.
    pub start_ns: u64,
    /// Allocations below this many bytes are filtered.
    pub min_size: u64,
    /// Allocations above this many bytes are filtered.
    pub max_size: u64,
    /// How many rings there are: 1 to [`super::MAX_RINGS`].
    pub rings: u32,
    /// How many frames a stack may have: 0 (no stacks) to [`super::MAX_FRAMES`].
    pub max_depth: u32,
    /// When a ring's backlog passes this many bytes, its reader is woken.
    pub wake_mark: u64,
    /// The offset of `signal` in `task_struct`, in bytes.
    pub task_signal: u32,
    /// The offset of `live` in `signal_struct`, in bytes.
    pub signal_live: u32,
    /// The offset of `utask` in `task_struct`, in bytes; 0: what return probes have put on the stack is not undone.
    pub task_utask: u32,
    /// The offset of `return_instances` in `uprobe_task`, in bytes.
    pub utask_instances: u32,
    /// The offset of `stack` in `return_instance`, in bytes.
    pub instance_stack: u32,
    /// The offset of `orig_ret_vaddr` in `return_instance`, in bytes.
    pub instance_address: u32,
    /// The offset of `next` in `return_instance`, in bytes.
    pub instance_next: u32,
    /// The offset of `tgid` in `task_struct`, in bytes.
    pub task_tgid: u32,
    /// The offset of `group_leader` in `task_struct`, in bytes.
    pub task_leader: u32,
    /// The offset of `comm` in `task_struct`, in bytes.
    pub task_comm: u32,
    /// The offset of `exe_file` in `mm_struct`, in bytes.
    pub memory_exe: u32,
    /// Who is traced: one of [`super::scope`]'s.
    pub scope: u32,
    /// Whether, unless a selector says otherwise, processes are traced: 1 or 0.
    pub by_default: u32,
    /// Whether control groups are among the selectors: 1 or 0.
    pub by_cgroup: u32,
    /// Whether records say which allocator has handed a block out: 1 or 0.
    pub allocators: u32,
    /// Of pages, one in so many is told of: 1 or more.
    pub page_sample: u32,
    /// Whether forks are told of: 1 or 0.
    pub forks: u32,
    /// The offset of `brk` in `mm_struct`, in bytes.
    pub memory_break: u32,
    /// Whether mappings are told of: 1; only where they were moved: 0.
    pub mappings: u32,
    /// How many programs follow each system call: 0, 1, or [`TURNS`] where each can be preempted.
    pub calls: u32,
    /// Where the kernel keeps what a process has mapped.
    pub areas: AreaLayout,
    /// How its tracepoints about reclaim are called.
    pub reclaim: ReclaimLayout,
    /// Where it keeps what it counts of processes.
    pub counts: CountsLayout,
}

/// Where the kernel keeps what a process has mapped: offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct AreaLayout {
    /// 1: they are known, and the kernel has `bpf_find_vma` (Linux 5.17). 0: it is not asked.
    pub known: u32,
    /// `mm` in `task_struct`.
    pub task_memory: u32,
    /// `exec_vm` in `mm_struct`: how many pages of code there are.
    pub code_pages: u32,
    /// `vm_start` in `vm_area_struct`.
    pub begin: u32,
    /// `vm_end` in `vm_area_struct`.
    pub end: u32,
    /// `vm_pgoff` in `vm_area_struct`.
    pub page_offset: u32,
    /// `vm_flags` in `vm_area_struct`.
    pub flags: u32,
    /// `vm_file` in `vm_area_struct`.
    pub file: u32,
    /// `vm_mm` in `vm_area_struct`.
    pub memory: u32,
    /// `context.vdso` in `mm_struct`.
    pub vdso: u32,
    /// `f_inode` in `file`.
    pub inode: u32,
    /// `i_ino` in `inode`.
    pub number: u32,
    /// The seconds of the change time in `inode`.
    pub changed_s: u32,
    /// The nanoseconds of the change time in `inode`.
    pub changed_ns: u32,
    /// `i_sb` in `inode`.
    pub super_block: u32,
    /// `s_dev` in `super_block`.
    pub device: u32,
    /// `file` in `linux_binprm`.
    pub program: u32,
    /// `files` in `task_struct`.
    pub task_files: u32,
    /// `fdt` in `files_struct`.
    pub files_table: u32,
    /// `fd` in `fdtable`.
    pub table_files: u32,
    /// `start_code` in `mm_struct`.
    pub program_begin: u32,
    /// `end_code` in `mm_struct`.
    pub program_end: u32,
}

/// So many programs follow the same where they can be preempted, so that it is seen by one of them.
pub const TURNS: u32 = 3;

/// Where system calls are followed: when they begin, and when they end.
pub const CALLS: u32 = 2;

/// What the programs do when they are hit.
pub mod gate {
    /// Nothing.
    pub const CLOSED: u64 = 0;
    /// Their work.
    pub const OPEN: u64 = 1;
    /// Only count calls by size, to foretell what their work would cost.
    pub const COUNTING: u64 = 2;
}

const _: () = assert!(size_of::<Settings>() == 336);
