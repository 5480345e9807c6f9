//! Parser of perf records (include/uapi/linux/perf_event.h, `enum perf_event_type`), without I/O.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use memtrace_model::{AbsAddr, BuildId, FileOffset, Pid, Tid};

/// Event of a process: a new mapping, an exec, a new name, or the start or exit of a process or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmapEvent {
    pub pid: Pid,
    pub tid: Tid,
    /// Time of the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    pub kind: MmapEventKind,
}

/// Kind of an [`MmapEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MmapEventKind {
    /// Memory was mapped as executable, or made executable.
    Mapped {
        start: AbsAddr,
        /// First address after the mapping.
        end: AbsAddr,
        /// Offset of `start` in the file.
        offset: FileOffset,
        /// Path in the process' mount namespace, with ` (deleted)` appended if the file is unlinked; or a special
        /// name, such as `[vdso]` and `//anon`.
        path: PathBuf,
        identity: FileIdentity,
        /// `PROT_*` bits.
        protection: u32,
    },
    /// The process replaced its executable and dropped its mappings.
    Exec { comm: String },
    /// The thread changed its name. The process has the name of its main thread.
    Comm { comm: String },
    /// The process was forked and has its parent's mappings.
    Fork { parent: Pid },
    /// The thread was started and has the name of its creator.
    ThreadStart { creator: Tid },
    /// The main thread of the process exited.
    Exit,
}

/// Identity of a mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileIdentity {
    /// Build ID, if the file has one and the kernel could read it.
    BuildId(BuildId),
    /// Device and inode; all zero if no file is mapped.
    Inode { major: u32, minor: u32, inode: u64 },
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Event(MmapEvent),
    /// Number of records that the kernel dropped.
    Lost(u64),
    /// Record that is not needed, such as the exit of a thread that is not the main thread.
    Other,
}

/// `struct perf_event_header`: type (4), misc (2), size (2).
pub(super) const HEADER_BYTES: usize = 8;

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_COMM: u32 = 3;
const PERF_RECORD_EXIT: u32 = 4;
const PERF_RECORD_FORK: u32 = 7;
const PERF_RECORD_MMAP2: u32 = 10;

const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;

/// Size of the longest build ID (`BUILD_ID_SIZE_MAX`).
const BUILD_ID_BYTES: usize = 20;

/// Parses a record; `None` if it is malformed.
pub(super) fn parse(bytes: &[u8]) -> Option<Record> {
    let mut fields = Fields(bytes);
    let kind = fields.u32()?;
    let misc = fields.u16()?;
    let _length = fields.u16()?;
    if kind == PERF_RECORD_LOST {
        let _event = fields.u64()?;
        return Some(Record::Lost(fields.u64()?));
    }
    // PERF_SAMPLE_TID and PERF_SAMPLE_TIME append a trailer to each record: pid (4), tid (4), time (8).
    let (body, trailer) = fields.0.split_at_checked(fields.0.len().checked_sub(16)?)?;
    let time_ns = Fields(trailer.get(8..)?).u64()?;
    let mut fields = Fields(body);
    let pid = Pid(fields.u32()?);
    let (tid, kind) = match kind {
        PERF_RECORD_MMAP2 => {
            let tid = fields.u32()?;
            (tid, mapped(&mut fields, misc & MISC_MMAP_BUILD_ID != 0)?)
        }
        PERF_RECORD_COMM => {
            let tid = fields.u32()?;
            let comm = String::from_utf8_lossy(fields.text()).into_owned();
            (tid, if misc & MISC_COMM_EXEC != 0 { MmapEventKind::Exec { comm } } else { MmapEventKind::Comm { comm } })
        }
        PERF_RECORD_FORK | PERF_RECORD_EXIT => {
            let parent = Pid(fields.u32()?);
            let tid = fields.u32()?;
            let creator = Tid(fields.u32()?);
            match (kind == PERF_RECORD_FORK, tid == pid.0) {
                (true, true) => (tid, MmapEventKind::Fork { parent }),
                (true, false) => (tid, MmapEventKind::ThreadStart { creator }),
                (false, true) => (tid, MmapEventKind::Exit),
                // The process continues after the exit of a thread that is not the main thread.
                (false, false) => return Some(Record::Other),
            }
        }
        _ => return Some(Record::Other),
    };
    Some(Record::Event(MmapEvent { pid, tid: Tid(tid), time_ns, kind }))
}

impl MmapEvent {
    /// Returns true for the start and the name of a thread that is not the main thread.
    pub(super) fn is_of_thread(&self) -> bool {
        let is_of_thread = matches!(self.kind, MmapEventKind::Comm { .. } | MmapEventKind::ThreadStart { .. });
        is_of_thread && self.tid.0 != self.pid.0
    }
}

fn mapped(fields: &mut Fields<'_>, has_build_id: bool) -> Option<MmapEventKind> {
    let start = fields.u64()?;
    let length = fields.u64()?;
    let offset = FileOffset(fields.u64()?);
    let mut file = Fields(fields.take(24)?);
    let identity = if has_build_id {
        let length = usize::from(file.take(4)?[0]);
        FileIdentity::BuildId(BuildId(file.take(BUILD_ID_BYTES)?.get(..length)?.into()))
    } else {
        FileIdentity::Inode { major: file.u32()?, minor: file.u32()?, inode: file.u64()? }
    };
    let protection = fields.u32()?;
    let _flags = fields.u32()?;
    let path = PathBuf::from(OsString::from_vec(fields.text().to_vec()));
    let end = AbsAddr(start.checked_add(length)?);
    Some(MmapEventKind::Mapped { start: AbsAddr(start), end, offset, path, identity, protection })
}

/// Unread rest of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Returns the rest of the record up to the first zero byte. The kernel pads strings with zeros.
    fn text(&self) -> &'a [u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a record as the kernel does (perf_event_open(2)).
    pub(in super::super) fn record(kind: u32, misc: u16, body: &[&[u8]], pid: u32, time: u64) -> Vec<u8> {
        let mut bytes = [kind.to_ne_bytes().as_slice(), &misc.to_ne_bytes(), &[0; 2], &body.concat()].concat();
        while bytes.len() % 8 != 0 {
            bytes.push(0);
        }
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(time.to_ne_bytes());
        let length = bytes.len() as u16;
        bytes[6..8].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    fn pair(first: u32, second: u32) -> Vec<u8> {
        [first.to_ne_bytes(), second.to_ne_bytes()].concat()
    }

    pub(in super::super) fn fork(pid: u32, parent: u32, time: u64) -> Vec<u8> {
        record(PERF_RECORD_FORK, 0, &[&pair(pid, parent), &pair(pid, parent), &words(&[time])], parent, time)
    }

    pub(in super::super) fn exit(pid: u32, time: u64) -> Vec<u8> {
        record(PERF_RECORD_EXIT, 0, &[&pair(pid, 1), &pair(pid, 1), &words(&[time])], pid, time)
    }

    pub(in super::super) fn exec(pid: u32, comm: &str, time: u64) -> Vec<u8> {
        record(PERF_RECORD_COMM, MISC_COMM_EXEC, &[&pair(pid, pid), comm.as_bytes(), b"\0"], pid, time)
    }

    pub(in super::super) fn comm(pid: u32, tid: u32, comm: &str, time: u64) -> Vec<u8> {
        record(PERF_RECORD_COMM, 0, &[&pair(pid, tid), comm.as_bytes(), b"\0"], pid, time)
    }

    pub(in super::super) fn lost(count: u64) -> Vec<u8> {
        record(PERF_RECORD_LOST, 0, &[&words(&[77, count])], 0, 0)
    }

    fn event(bytes: &[u8]) -> MmapEvent {
        match parse(bytes) {
            Some(Record::Event(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_mapping_with_device_and_inode_is_parsed() {
        let bytes = record(
            PERF_RECORD_MMAP2,
            2,
            &[
                &pair(10, 11),
                &words(&[0x7f00_0000, 0x2000, 0x1000]),
                &pair(8, 1),
                &words(&[4711, 1]),
                &pair(5, 2),
                b"/usr/lib/libc.so.6\0",
            ],
            10,
            99,
        );
        let expected = MmapEvent {
            pid: Pid(10),
            tid: Tid(11),
            time_ns: 99,
            kind: MmapEventKind::Mapped {
                start: AbsAddr(0x7f00_0000),
                end: AbsAddr(0x7f00_2000),
                offset: FileOffset(0x1000),
                path: PathBuf::from("/usr/lib/libc.so.6"),
                identity: FileIdentity::Inode { major: 8, minor: 1, inode: 4711 },
                protection: 5,
            },
        };
        assert_eq!(event(&bytes), expected);
    }

    #[test]
    fn a_build_id_has_the_length_in_the_record() {
        let build_id: Vec<u8> = (1..=20).collect();
        let bytes = |length: u8| {
            let id = [[length, 0, 0, 0].as_slice(), &build_id].concat();
            let body = [pair(1, 1), words(&[0x1000, 0x1000, 0]), id, pair(5, 2), b"/x\0".to_vec()];
            let body: Vec<&[u8]> = body.iter().map(Vec::as_slice).collect();
            record(PERF_RECORD_MMAP2, MISC_MMAP_BUILD_ID, &body, 1, 1)
        };
        for length in [0, 8, 20] {
            let MmapEventKind::Mapped { identity, .. } = event(&bytes(length)).kind else { panic!("not a mapping") };
            assert_eq!(identity, FileIdentity::BuildId(BuildId(build_id[..usize::from(length)].into())));
        }
        assert_eq!(parse(&bytes(21)), None);
    }

    #[test]
    fn exec_comm_fork_and_exit_are_parsed() {
        assert_eq!(event(&exec(5, "true", 3)).kind, MmapEventKind::Exec { comm: String::from("true") });
        let comm = |tid| comm(5, tid, "worker", 1);
        assert_eq!(event(&comm(5)).kind, MmapEventKind::Comm { comm: String::from("worker") });
        assert_eq!(event(&comm(6)).kind, MmapEventKind::Comm { comm: String::from("worker") });
        assert!(event(&comm(6)).is_of_thread() && !event(&comm(5)).is_of_thread());
        assert_eq!(event(&fork(6, 5, 1)).kind, MmapEventKind::Fork { parent: Pid(5) });
        let thread = |kind| record(kind, 0, &[&pair(5, 5), &pair(9, 7), &words(&[1])], 5, 1);
        let start = event(&thread(PERF_RECORD_FORK));
        assert_eq!((start.tid, &start.kind), (Tid(9), &MmapEventKind::ThreadStart { creator: Tid(7) }));
        assert!(start.is_of_thread());
        assert_eq!(parse(&thread(PERF_RECORD_EXIT)), Some(Record::Other));
        assert_eq!(event(&exit(5, 1)).kind, MmapEventKind::Exit);
        assert_eq!(parse(&lost(12)), Some(Record::Lost(12)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u32..16) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_chunk_mut::<4>() {
                *first = kind.to_ne_bytes();
            }
            let _ = parse(&bytes);
        }
    }
}
