//! What the programs ask for: tables of objects that they meet and do not know.

use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, RawFd};

use aya::Ebpf;
use aya::maps::{MapData, RingBuf};
use memtrace_common::unwind::ObjectKey;
use memtrace_common::wire::TableRequestRecord;

use super::take;
use crate::kernel::error::KernelError;
use crate::model::{AbsAddr, Pid};

/// An object that a process has mapped, and whose table is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRequest {
    /// Which.
    pub object: ObjectKey,
    /// Who has mapped it.
    pub pid: Pid,
    /// Where: the first address, and the one behind the last. `None`: it is the program that the process runs.
    pub range: Option<(AbsAddr, AbsAddr)>,
}

/// The requests, in their order.
pub struct TableRequestReader(RingBuf<MapData>);

impl TableRequestReader {
    pub(in crate::kernel) fn take(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        let ring = take(ebpf, "TABLE_REQUESTS")?.try_into();
        ring.map(Self).map_err(|error| KernelError::from_error("read what the programs ask for", &error))
    }

    /// Hands over what has been asked for since the last call.
    pub fn drain(&mut self, mut sink: impl FnMut(TableRequest)) {
        while let Some(record) = self.0.next() {
            if let Some(wanted) = parse(&record) {
                sink(wanted);
            }
        }
    }
}

impl AsRawFd for TableRequestReader {
    /// A descriptor that becomes readable when something is asked for.
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn parse(record: &[u8]) -> Option<TableRequest> {
    let record: &[u8; size_of::<TableRequestRecord>()] = record.first_chunk()?;
    let word = |at: usize| record[at..].first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let half = |at: usize| record[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let object = offset_of!(TableRequestRecord, object);
    let (begin, end) = (word(offset_of!(TableRequestRecord, begin))?, word(offset_of!(TableRequestRecord, end))?);
    Some(TableRequest {
        object: ObjectKey {
            inode: word(object + offset_of!(ObjectKey, inode))?,
            changed_s: word(object + offset_of!(ObjectKey, changed_s))?.cast_signed(),
            changed_ns: half(object + offset_of!(ObjectKey, changed_ns))?,
            device: half(object + offset_of!(ObjectKey, device))?,
        },
        pid: Pid(half(offset_of!(TableRequestRecord, pid))?),
        range: (end != 0).then_some((AbsAddr(begin), AbsAddr(end))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_lies_on_the_wire() {
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
