//! Memory of the current process, for stack walks.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use memtrace_unwind::{Machine, ReadMemory, goroutine_sp};

use crate::registers;

/// Reader of the current process's memory.
pub struct UserMemory;

impl ReadMemory for UserMemory {
    #[inline(always)]
    fn read(&mut self, address: u64, into: &mut [u64]) -> bool {
        let bytes = size_of_val(into) as u32;
        // SAFETY: the helper checks the address, and writes at most the size of `into`.
        unsafe { bpf_probe_read_user(into.as_mut_ptr().cast(), bytes, address as *const c_void) == 0 }
    }

    #[inline(always)]
    fn goroutine_sp(&mut self, goroutine: u64, distance: u64) -> Option<u64> {
        match unwind_goroutine(goroutine, distance) {
            0 => None,
            sp => Some(sp),
        }
    }

    #[inline(always)]
    fn machine(&self) -> Machine {
        registers::MACHINE
    }
}

/// Returns the stack pointer of a goroutine; 0 if a word is unreadable. The function is global, so that its stack frame is not
/// added to the frame of the walk's step.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_goroutine(goroutine: u64, distance: u64) -> u64 {
    let word = |address| {
        let mut word = [0];
        UserMemory.read(address, &mut word).then_some(word[0])
    };
    goroutine_sp(goroutine, distance, word).unwrap_or(0)
}
