//! Atomic instructions (BPF v3, Linux 5.12) that `core` does not offer for this target.
//!
//! The programs are preemptible at uprobes (`bpf_prog_run_array_uprobe`, include/linux/bpf.h, only disables migration),
//! so that even a per-CPU word needs them.

use core::arch::asm;

/// Adds `value` to the word at `word` and returns what was there before.
///
/// # Safety
///
/// `word` points into a map's value and is aligned to 8 bytes.
#[inline(always)]
pub unsafe fn fetch_add(word: *mut u64, value: u64) -> u64 {
    let mut value = value;
    // SAFETY: the caller vouches for the pointer; the instruction touches nothing else.
    unsafe {
        asm!("{value} = atomic_fetch_add((u64 *)({word} + 0), {value})", word = in(reg) word, value = inout(reg) value)
    };
    value
}

/// Puts `value` into the word at `word` and returns what was there before.
///
/// # Safety
///
/// As [`fetch_add`].
#[inline(always)]
pub unsafe fn exchange(word: *mut u64, value: u64) -> u64 {
    let mut value = value;
    // SAFETY: the caller vouches for the pointer; the instruction touches nothing else.
    unsafe { asm!("{value} = xchg_64({word} + 0, {value})", word = in(reg) word, value = inout(reg) value) };
    value
}

/// Puts `value` into the word at `word` if it holds `expected`, and returns what was there before.
///
/// # Safety
///
/// As [`fetch_add`].
#[inline(always)]
pub unsafe fn compare_exchange(word: *mut u64, expected: u64, value: u64) -> u64 {
    let mut before = expected;
    // SAFETY: the caller vouches for the pointer; the instruction compares with r0 and leaves the old word there.
    unsafe {
        asm!("r0 = cmpxchg_64({word} + 0, r0, {value})", word = in(reg) word, value = in(reg) value, inout("r0") before);
    };
    before
}
