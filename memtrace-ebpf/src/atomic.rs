//! Atomic read-modify-write instructions, which `core` lacks for this target, and locks built from them.
//!
//! Programs at uprobes can be preempted (`bpf_prog_run_array_uprobe`, include/linux/bpf.h, only disables migration),
//! so even a per-CPU word needs atomic instructions.

use core::arch::asm;

/// Adds `value` to the word at `word`.
///
/// # Safety
///
/// `word` must point into a map value and be aligned to 8 bytes.
#[inline(always)]
pub unsafe fn add(word: *mut u64, value: u64) {
    // SAFETY: the caller vouches for the pointer; the instruction touches nothing else.
    unsafe { asm!("lock *(u64 *)({word} + 0) += {value}", word = in(reg) word, value = in(reg) value) };
}

/// Adds `value` to the word at `word` and returns its previous value.
///
/// # Safety
///
/// Same as for [`add`].
#[inline(always)]
pub unsafe fn fetch_add(word: *mut u64, value: u64) -> u64 {
    let mut value = value;
    // SAFETY: as above.
    unsafe {
        asm!("{value} = atomic_fetch_add((u64 *)({word} + 0), {value})", word = in(reg) word, value = inout(reg) value)
    };
    value
}

/// Sets the bits of `value` in the word at `word`.
///
/// # Safety
///
/// Same as for [`add`].
#[inline(always)]
pub unsafe fn or(word: *mut u64, value: u64) {
    // SAFETY: as above.
    unsafe {
        asm!(
            "{value} = atomic_fetch_or((u64 *)({word} + 0), {value})",
            word = in(reg) word,
            value = inout(reg) value => _
        );
    }
}

/// Stores `owner` at `word` if the word is 0. Returns true if the word was 0.
///
/// # Safety
///
/// Same as for [`add`].
#[inline(always)]
pub unsafe fn lock(word: *mut u64, owner: u64) -> bool {
    let mut before = 0;
    // SAFETY: the caller vouches for the pointer; the instruction compares with r0 and leaves the old word there.
    unsafe {
        asm!("r0 = cmpxchg_64({word} + 0, r0, {owner})", word = in(reg) word, owner = in(reg) owner, inout("r0") before);
    };
    before == 0u64
}

/// Stores 0 in a word that [`lock`] has set. The store takes effect after all earlier writes of the owner.
///
/// # Safety
///
/// Same as for [`add`].
#[inline(always)]
pub unsafe fn unlock(word: *mut u64) {
    let unlocked = 0u64;
    // SAFETY: the caller vouches for the pointer; the instruction touches nothing else.
    unsafe {
        asm!("{unlocked} = xchg_64({word} + 0, {unlocked})", word = in(reg) word, unlocked = inout(reg) unlocked => _)
    };
}
