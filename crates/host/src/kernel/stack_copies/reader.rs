//! Reader of the ring of stack copies.

use std::time::Duration;

use super::assembly::{Assembly, StackCopy};
use crate::kernel::bpf::Bpf;
use crate::kernel::error::KernelError;
use crate::kernel::mapped_ring::MappedRing;

/// Reader of the ring with stack copies.
pub struct StackCopyReader {
    ring: MappedRing,
    assembly: Assembly,
}

impl StackCopyReader {
    pub(in crate::kernel) fn take(bpf: &mut Bpf) -> Result<Self, KernelError> {
        let ring = bpf.take_ring("STACK_COPIES", "read copies of stacks")?;
        Ok(Self { ring, assembly: Assembly::default() })
    }

    /// Reads up to `limit` records, and passes complete copies to `sink`. Returns the number of records that were read.
    pub fn drain(&mut self, limit: usize, mut sink: impl FnMut(StackCopy)) -> usize {
        for read in 0..limit {
            let Some(record) = self.ring.next_record() else { return read };
            if let Some(copy) = self.assembly.add(&record) {
                sink(copy);
            }
        }
        limit
    }

    /// Returns true if the ring has records, including one that is not complete yet.
    pub fn has_unread(&mut self) -> bool {
        self.ring.has_unread()
    }

    /// Waits until a BPF program wakes the reader, or `timeout` elapses.
    pub fn wait(&mut self, timeout: Duration) {
        self.ring.wait(timeout);
    }
}
