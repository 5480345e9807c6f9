//! Memory of the current process, for stack walks.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use memtrace_unwind::{Machine, ReadMemory};

use crate::registers;

/// Memory of the current process.
pub struct UserMemory;

impl ReadMemory for UserMemory {
    #[inline(always)]
    fn read(&mut self, address: u64, into: &mut [u64]) -> bool {
        let bytes = size_of_val(into) as u32;
        // SAFETY: the helper writes as many bytes as `into` has, and checks the address.
        unsafe { bpf_probe_read_user(into.as_mut_ptr().cast(), bytes, address as *const c_void) == 0 }
    }

    #[inline(always)]
    fn machine(&self) -> Machine {
        registers::MACHINE
    }
}
