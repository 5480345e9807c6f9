//! Reads of kernel memory, at offsets from the settings.

use core::ptr::from_mut;

use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated;
use memtrace_common::wire::COMM;

/// Types that can be read from kernel memory.
///
/// # Safety
///
/// Every bit pattern must be a valid value of the type.
pub unsafe trait AnyBits: Copy {}

// SAFETY: these are integers, and arrays of them.
unsafe impl AnyBits for u32 {}
// SAFETY: as above.
unsafe impl AnyBits for i32 {}
// SAFETY: as above.
unsafe impl AnyBits for u64 {}
// SAFETY: as above.
unsafe impl AnyBits for [u8; COMM] {}

/// Returns the address of the current `task_struct`.
#[inline(always)]
pub fn current_task() -> u64 {
    // SAFETY: the helper takes nothing.
    unsafe { generated::bpf_get_current_task() }
}

/// Reads the value `offset` bytes after `base`.
#[inline(always)]
pub fn read<T: AnyBits>(base: u64, offset: u32) -> Option<T> {
    // SAFETY: the helper checks the address, and any bits are a value of `T`.
    unsafe { bpf_probe_read_kernel((base + offset as u64) as *const T) }.ok()
}

/// Reads the name of a task `offset` bytes after `base`, as words; zeros if it cannot be read. The read ends at the
/// zero byte, because the bytes after it are arbitrary in the argument of `trace_task_rename` (fs/exec.c).
#[inline(always)]
pub fn read_name(base: u64, offset: u32) -> [u64; 2] {
    let mut words = [0_u64; 2];
    let size = size_of_val(&words) as u32;
    // SAFETY: the helper checks the address, and writes at most the size of `words`.
    unsafe {
        generated::bpf_probe_read_kernel_str(words.as_mut_ptr().cast(), size, (base + offset as u64) as *const _)
    };
    words
}

/// Reads the word `offset` bytes after `base`; 0 if it cannot be read. The helper's result is not checked: each check
/// would double the paths that the verifier walks.
#[inline(always)]
pub fn read_word(base: u64, offset: u32) -> u64 {
    let mut word = 0_u64;
    let into = from_mut(&mut word).cast();
    // SAFETY: `into` has space for a word. The helper checks the address, and writes zeros if it cannot read.
    unsafe { generated::bpf_probe_read_kernel(into, size_of::<u64>() as u32, (base + offset as u64) as *const _) };
    word
}
