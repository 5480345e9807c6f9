//! Requests of the BPF programs for the unwind tables of unknown objects.

use std::os::fd::{AsRawFd, RawFd};

use memtrace_common::unwind::ObjectKey;
use memtrace_common::wire::TableRequestRecord;
use memtrace_model::{AbsAddr, Pid};

use crate::kernel::bpf::Bpf;
use crate::kernel::error::KernelError;
use crate::kernel::mapped_ring::MappedRing;
use crate::kernel::wire_type;

/// Request for the unwind table of an object that a process has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRequest {
    /// File id of the object.
    pub object: ObjectKey,
    /// Process that has mapped the object.
    pub pid: Pid,
    /// First address of the mapping, and the address after the mapping; `None` for the executable of the process.
    pub range: Option<(AbsAddr, AbsAddr)>,
}

/// Reader of the ring with the requests.
pub struct TableRequestReader(MappedRing);

impl TableRequestReader {
    pub(in crate::kernel) fn take(bpf: &mut Bpf) -> Result<Self, KernelError> {
        bpf.take_ring("TABLE_REQUESTS", "read requests for unwind tables").map(Self)
    }

    /// Passes all unread requests to `sink`.
    pub fn drain(&mut self, mut sink: impl FnMut(TableRequest)) {
        while let Some(record) = self.0.next_record() {
            if let Some(request) = parse(&record) {
                sink(request);
            }
        }
    }
}

impl AsRawFd for TableRequestReader {
    /// Returns a descriptor that becomes readable when there is a request.
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn parse(record: &[u8]) -> Option<TableRequest> {
    let TableRequestRecord { object, begin, end, pid, .. } = wire_type::read(record)?;
    Some(TableRequest { object, pid: Pid(pid), range: (end != 0).then_some((AbsAddr(begin), AbsAddr(end))) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_contain_object_process_and_range() {
        let words: [u64; 6] = [0x11, 0x22, 0x33 | 0x44 << 32, 0x7f00_0000_1000, 0x7f00_0000_2000, 0x55];
        let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let object = ObjectKey { inode: 0x11, changed_s: 0x22, changed_ns: 0x33, device: 0x44 };
        let range = Some((AbsAddr(0x7f00_0000_1000), AbsAddr(0x7f00_0000_2000)));
        assert_eq!(parse(&record), Some(TableRequest { object, pid: Pid(0x55), range }));
        assert_eq!(parse(&record[1..]), None);
        record[24..40].fill(0);
        assert_eq!(parse(&record), Some(TableRequest { object, pid: Pid(0x55), range: None }));
    }
}
