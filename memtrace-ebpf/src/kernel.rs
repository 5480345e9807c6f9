//! What lies in the kernel's own memory, at offsets that settings tell.

use core::ptr::from_mut;

use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated;
use memtrace_common::wire::COMM;

/// What may be read from anywhere.
///
/// # Safety
///
/// Any bits are a value of it.
pub unsafe trait AnyBits: Copy {}

// SAFETY: these are integers, and arrays of them.
unsafe impl AnyBits for u32 {}
// SAFETY: as above.
unsafe impl AnyBits for i32 {}
// SAFETY: as above.
unsafe impl AnyBits for u64 {}
// SAFETY: as above.
unsafe impl AnyBits for [u64; 2] {}
// SAFETY: as above.
unsafe impl AnyBits for [u8; COMM] {}

/// The current task.
#[inline(always)]
pub fn task() -> u64 {
    // SAFETY: the helper takes nothing.
    unsafe { generated::bpf_get_current_task() }
}

/// What lies `offset` bytes behind `base`, if it can be read.
#[inline(always)]
pub fn read<T: AnyBits>(base: u64, offset: u32) -> Option<T> {
    // SAFETY: the helper checks the address, and any bits are a value.
    unsafe { bpf_probe_read_kernel((base + offset as u64) as *const T) }.ok()
}

/// The word that lies `offset` bytes behind `base`; 0 where it cannot be read, as the helper leaves it. Whether it could be is not
/// asked, since each answer would be another way for the verifier to walk.
#[inline(always)]
pub fn word(base: u64, offset: u32) -> u64 {
    let mut word = 0_u64;
    let room = from_mut(&mut word).cast();
    // SAFETY: the helper checks the address, and there is room for a word.
    unsafe { generated::bpf_probe_read_kernel(room, size_of::<u64>() as u32, (base + offset as u64) as *const _) };
    word
}
