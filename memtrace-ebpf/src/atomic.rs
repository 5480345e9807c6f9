//! Atomic instructions, and the locks that are made of them. `core` offers none for this target.
//!
//! Programs at uprobes can be preempted (`bpf_prog_run_array_uprobe`, include/linux/bpf.h, only disables migration), so
//! even a per-CPU word needs them.
//!
//! The legacy object (feature `legacy`) is for kernels that have no atomic instruction except addition (before Linux
//! 5.12) and no helpers that call a program back (before 5.13). Its locks are entries of a map.

use core::arch::asm;

pub use lock::{lock, unlock};

/// True in the legacy object.
pub const IS_LEGACY: bool = cfg!(feature = "legacy");

/// Adds `value` to the word at `word`.
///
/// # Safety
///
/// `word` points into a map's value and is aligned to 8 bytes.
#[inline(always)]
pub unsafe fn add(word: *mut u64, value: u64) {
    // SAFETY: the caller vouches for the pointer; the instruction touches nothing else.
    unsafe { asm!("lock *(u64 *)({word} + 0) += {value}", word = in(reg) word, value = in(reg) value) };
}

/// Adds `value` to the word at `word` and returns its previous value. Not available in the legacy object.
///
/// # Safety
///
/// As [`add`].
#[inline(always)]
pub unsafe fn fetch_add(word: *mut u64, value: u64) -> u64 {
    let mut value = value;
    // SAFETY: as above.
    unsafe {
        asm!("{value} = atomic_fetch_add((u64 *)({word} + 0), {value})", word = in(reg) word, value = inout(reg) value)
    };
    value
}

/// Names a lock in the legacy object.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "legacy"), expect(dead_code, reason = "the other object locks the word itself"))]
pub struct LockId(u32);

impl LockId {
    /// Lock of a slot of pending calls.
    #[inline(always)]
    pub fn pending(slot: u32) -> Self {
        Self(slot)
    }

    /// Lock of a slot of scratch memory.
    #[inline(always)]
    pub fn scratch(slot: u32) -> Self {
        Self(crate::limits::PENDING_SLOTS as u32 + slot)
    }
}

#[cfg(not(feature = "legacy"))]
mod lock {
    use core::arch::asm;

    use super::LockId;

    /// Stores `owner` at `word` if the word is 0. Returns true if it did.
    ///
    /// # Safety
    ///
    /// As [`super::add`].
    #[inline(always)]
    pub unsafe fn lock(word: *mut u64, _id: LockId, owner: u64) -> bool {
        let mut before = 0;
        // SAFETY: the caller vouches for the pointer; the instruction compares with r0 and leaves the old word there.
        unsafe {
            asm!("r0 = cmpxchg_64({word} + 0, r0, {owner})", word = in(reg) word, owner = in(reg) owner, inout("r0") before);
        };
        before == 0u64
    }

    /// Stores 0 in a word that [`lock`] has set, after all earlier writes of the owner.
    ///
    /// # Safety
    ///
    /// As [`super::add`].
    #[inline(always)]
    pub unsafe fn unlock(word: *mut u64, _id: LockId) {
        let unlocked = 0u64;
        // SAFETY: the caller vouches for the pointer; the instruction touches nothing else.
        unsafe {
            asm!("{unlocked} = xchg_64({word} + 0, {unlocked})", word = in(reg) word, unlocked = inout(reg) unlocked => _)
        };
    }
}

#[cfg(feature = "legacy")]
mod lock {
    use core::ptr::write_volatile;

    use aya_ebpf::btf_maps::HashMap;
    use aya_ebpf::macros::btf_map;

    use super::LockId;
    use crate::limits::{BPF_NOEXIST, PENDING_SLOTS, SCRATCH_SLOTS};

    /// The locks that are held. The kernel lets one thread only insert a key that is not there.
    #[btf_map]
    static LOCKS: HashMap<u32, u32, { PENDING_SLOTS + SCRATCH_SLOTS }> = HashMap::new();

    /// Stores `owner` at `word` if the lock `id` is free. Returns true if it did.
    ///
    /// # Safety
    ///
    /// As [`super::add`].
    #[inline(always)]
    pub unsafe fn lock(word: *mut u64, id: LockId, owner: u64) -> bool {
        let locked = LOCKS.insert(&id.0, &1, BPF_NOEXIST).is_ok();
        if locked {
            // SAFETY: the caller vouches for the pointer.
            unsafe { write_volatile(word, owner) };
        }
        locked
    }

    /// Stores 0 in a word that [`lock`] has set, after all earlier writes of the owner: the kernel locks the entry.
    ///
    /// # Safety
    ///
    /// As [`super::add`].
    #[inline(always)]
    pub unsafe fn unlock(word: *mut u64, id: LockId) {
        // SAFETY: the caller vouches for the pointer.
        unsafe { write_volatile(word, 0) };
        let _ = LOCKS.remove(&id.0);
    }
}
