//! Atomic instructions, which `core` does not offer for this target; and what is done in their place in the plain object.
//!
//! The programs are preemptible at uprobes (`bpf_prog_run_array_uprobe`, include/linux/bpf.h, only disables migration),
//! so that even a per-CPU word needs them.
//!
//! The plain object (the feature `plain`) is for kernels whose BPF has no atomic instruction but addition, which Linux has
//! had before 5.12, and nothing that calls a program back (5.13).

use core::arch::asm;

/// Whether this is the plain object.
pub const IS_PLAIN: bool = cfg!(feature = "plain");

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

/// Adds `value` to the word at `word` and returns what was there before. The plain object cannot.
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

pub use taking::{give_back, take};

/// The first numbers of the words that can be taken: those of each kind are numbered on from here.
pub mod first {
    /// Those of the calls that have not returned.
    pub const PENDING: u32 = 0;
    /// Those of the scratch memory.
    pub const SCRATCH: u32 = PENDING + crate::pending::SLOTS as u32;
}

#[cfg(not(feature = "plain"))]
mod taking {
    use core::arch::asm;

    /// Puts `owner` into the word at `word`, the one with this number, if it holds 0; says whether it did.
    ///
    /// # Safety
    ///
    /// As [`super::add`].
    #[inline(always)]
    pub unsafe fn take(word: *mut u64, _number: u32, owner: u64) -> bool {
        let mut before = 0;
        // SAFETY: the caller vouches for the pointer; the instruction compares with r0 and leaves the old word there.
        unsafe {
            asm!("r0 = cmpxchg_64({word} + 0, r0, {owner})", word = in(reg) word, owner = in(reg) owner, inout("r0") before);
        };
        before == 0u64
    }

    /// Puts 0 into a word that was taken. What the owner has written is written before.
    ///
    /// # Safety
    ///
    /// As [`super::add`].
    #[inline(always)]
    pub unsafe fn give_back(word: *mut u64, _number: u32) {
        let nobody = 0u64;
        // SAFETY: the caller vouches for the pointer; the instruction touches nothing else.
        unsafe {
            asm!("{nobody} = xchg_64({word} + 0, {nobody})", word = in(reg) word, nobody = inout(reg) nobody => _)
        };
    }
}

#[cfg(feature = "plain")]
mod taking {
    use core::ptr::write_volatile;

    use aya_ebpf::btf_maps::HashMap;
    use aya_ebpf::macros::btf_map;

    use crate::{gate, pending, stack};

    /// The words that are taken, by their numbers: the kernel lets only one thread enter what was not there.
    #[btf_map]
    static TAKEN: HashMap<u32, u32, { pending::SLOTS + stack::SLOTS }> = HashMap::new();

    /// Puts `owner` into the word at `word`, the one with this number, if it holds 0; says whether it did.
    ///
    /// # Safety
    ///
    /// As [`super::add`].
    #[inline(always)]
    pub unsafe fn take(word: *mut u64, number: u32, owner: u64) -> bool {
        let taken = TAKEN.insert(&number, &1, gate::IF_NEW).is_ok();
        if taken {
            // SAFETY: the caller vouches for the pointer.
            unsafe { write_volatile(word, owner) };
        }
        taken
    }

    /// Puts 0 into a word that was taken. What the owner has written is written before: the kernel locks the entry.
    ///
    /// # Safety
    ///
    /// As [`super::add`].
    #[inline(always)]
    pub unsafe fn give_back(word: *mut u64, number: u32) {
        // SAFETY: the caller vouches for the pointer.
        unsafe { write_volatile(word, 0) };
        let _ = TAKEN.remove(&number);
    }
}
