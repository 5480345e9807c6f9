//! Memory of the current process, for stack walks.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use memtrace_unwind::{Machine, ReadMemory};

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
    fn machine(&self) -> Machine {
        registers::MACHINE
    }
}
