//! Counters of a thread, in task storage.

use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, BPF_LOCAL_STORAGE_GET_F_CREATE, task_struct};
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_storage_get};
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::usage;

/// `BPF_MAP_TYPE_TASK_STORAGE`, include/uapi/linux/bpf.h.
const TASK_STORAGE: usize = 29;

/// Map of the type task storage. aya has no type for it.
#[repr(C)]
struct TaskStorage<T> {
    r#type: *const [i32; TASK_STORAGE],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: the pointers describe the map to the loader, and are never read.
unsafe impl<T> Sync for TaskStorage<T> {}

/// Heap counters and pending call of a thread. Only the thread itself writes them.
#[repr(C)]
pub struct ThreadCounts {
    /// Heap counters, at the indices of [`usage`].
    pub heap: [u64; usage::HEAP],
    /// Stack pointer at the entry of the pending call; 0: no call is pending.
    pub stack_pointer: u64,
    pub call: u32,
    /// Number of nested calls since the entry of the pending call.
    pub nested: u32,
    /// Requested bytes of the pending call.
    pub size: u64,
    /// Address of the block that the call frees, or of the variable for the new block's address.
    pub block: u64,
    /// Size in bytes of the block that a realloc or resize frees.
    pub old_size: u64,
    /// Call that has failed and has not returned yet. Code of the program runs inside it.
    pub failed: FailedCall,
    /// Address of the block that the thread's latest allocation returned; 0 if the thread has freed a block since.
    pub last_block: u64,
    /// The allocator's own counters of allocated and of freed bytes, read before the thread exits.
    pub own: [u64; 2],
    /// 1 if `own` has been read, else 0.
    pub has_own: u64,
}

/// A call that has failed.
#[repr(C)]
pub struct FailedCall {
    /// Stack pointer at the entry of the failed call; 0 if there is no failed call.
    pub stack_pointer: u64,
    /// Requested bytes.
    pub size: u64,
    /// 1 if the allocator stores the size of a block in front of the block, else 0.
    pub has_sizes: u64,
}

#[btf_map]
static THREAD_COUNTS: TaskStorage<ThreadCounts> = TaskStorage {
    r#type: core::ptr::null(),
    key: core::ptr::null(),
    value: core::ptr::null(),
    max_entries: core::ptr::null(),
    map_flags: core::ptr::null(),
};

impl ThreadCounts {
    /// Counts an allocated block of `size` bytes.
    #[inline(always)]
    pub fn add_allocated(&mut self, block: u64, size: u64) {
        self.heap[usage::ALLOC_BYTES] += size;
        self.heap[usage::ALLOC_COUNT] += 1;
        self.last_block = block;
    }

    /// Counts a freed block of `size` bytes.
    #[inline(always)]
    pub fn add_freed(&mut self, size: u64) {
        self.heap[usage::FREE_BYTES] += size;
        self.heap[usage::FREE_COUNT] += 1;
        self.last_block = 0;
    }
}

/// Returns the counters of the current thread; creates them if the thread has none. Returns `None` if the kernel has
/// no memory for them.
#[inline(always)]
pub fn of_current() -> Option<&'static mut ThreadCounts> {
    // SAFETY: the helper takes nothing.
    let task = unsafe { bpf_get_current_task_btf() };
    get(task, BPF_LOCAL_STORAGE_GET_F_CREATE as u64)
}

/// Returns the counters of a task, if it has any.
#[inline(always)]
pub fn of_task(task: *mut task_struct) -> Option<&'static mut ThreadCounts> {
    get(task, 0)
}

#[inline(always)]
fn get(task: *mut task_struct, flags: u64) -> Option<&'static mut ThreadCounts> {
    let map = (&raw const THREAD_COUNTS).cast_mut().cast();
    // SAFETY: the map has the type task storage, and the verifier checks the task.
    let counts = unsafe { bpf_task_storage_get(map, task, core::ptr::null_mut(), flags) };
    // SAFETY: the pointer is null or refers to a map value. Only the thread writes the value; other threads read single
    // words.
    unsafe { counts.cast::<ThreadCounts>().as_mut() }
}
