//! Reader of the entries of functions that set marks.

use std::os::fd::{AsRawFd, RawFd};

use memtrace_common::wire::MarkRecord;
use memtrace_model::Pid;

use super::bpf::Bpf;
use super::error::KernelError;
use super::mapped_ring::MappedRing;
use super::wire_type;

/// Entry of a function that sets a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkEntry {
    /// Number of the function, as given when its probe was attached.
    pub function: u32,
    /// Process that has entered the function.
    pub pid: Pid,
}

/// Reader of the ring with the entries.
pub struct MarkEntryReader(MappedRing);

impl MarkEntryReader {
    pub(super) fn take(bpf: &mut Bpf) -> Result<Self, KernelError> {
        bpf.take_ring("MARKS", "read the entries of functions that set marks").map(Self)
    }

    /// Passes all unread entries to `sink`, in order.
    pub fn drain(&mut self, mut sink: impl FnMut(MarkEntry)) {
        while let Some(record) = self.0.next_record() {
            if let Some(entry) = parse(&record) {
                sink(entry);
            }
        }
    }
}

impl AsRawFd for MarkEntryReader {
    /// Returns a descriptor that becomes readable when a function that sets marks is entered.
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn parse(record: &[u8]) -> Option<MarkEntry> {
    let MarkRecord { function, pid } = wire_type::read(record)?;
    Some(MarkEntry { function, pid: Pid(pid) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_record_is_ignored() {
        let record = [3_u32.to_ne_bytes(), 70_u32.to_ne_bytes()].concat();
        assert_eq!(parse(&record), Some(MarkEntry { function: 3, pid: Pid(70) }));
        assert_eq!(parse(&record[1..]), None);
    }
}
