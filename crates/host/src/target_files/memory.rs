//! Reads of memory of a target, by a worker: a page can belong to a file on a file system that never answers. The worker of a
//! process stays for further reads.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use memtrace_model::{AbsAddr, Pid};

use super::client::{self, Owner, WaitCause};
use super::protocol::{Call, Links, MAX_MEMORY, MAX_MEMORY_MESSAGE, MemoryBytes, MemoryRange, Wants};
use super::worker;
use crate::own_server;
use crate::procfs::{self, kernel_files};
use crate::unread_files::UnreadFile;

/// Worker of the last read.
static READER: Mutex<Option<Reader>> = Mutex::new(None);

/// A worker that reads the memory of a process.
struct Reader {
    pid: Pid,
    cause: WaitCause,
    socket: OwnedFd,
}

/// Reads at most `length` bytes from `address` on; `None` if none can be read. `owner` returns the owner that is
/// charged for the wait if pages do not arrive.
pub(super) fn read(pid: Pid, address: AbsAddr, length: usize, owner: impl FnOnce() -> Owner) -> Option<Vec<u8>> {
    let range = MemoryRange { address: address.0, length: u32::try_from(length.min(MAX_MEMORY)).ok()? };
    if !client::is_enabled() {
        return worker::read_range(&open(pid).ok()?, range);
    }
    let mut last = READER.lock().unwrap_or_else(PoisonError::into_inner);
    let known = last.take().filter(|reader| reader.pid == pid);
    let known = known.map(|reader| (reader.ask(range), reader));
    let (answer, reader) = match known {
        Some((Err(error), _)) if [io::ErrorKind::TimedOut, io::ErrorKind::Interrupted].contains(&error.kind()) => {
            return None;
        }
        Some((Ok(answer), reader)) if answer.as_ref().is_none_or(|bytes| !bytes.is_empty()) => (answer, reader),
        // The worker has ended. Or it reads the memory of an earlier image, because the process has called exec, or another
        // process now has the pid.
        Some(_) | None => {
            let reader = Reader::start(pid, owner()).ok()?;
            (reader.ask(range).ok()?, reader)
        }
    };
    *last = Some(reader);
    answer.filter(|bytes| !bytes.is_empty())
}

fn open(pid: Pid) -> io::Result<File> {
    kernel_files::open(procfs::proc_path(pid, "mem"))
}

impl Reader {
    fn start(pid: Pid, owner: Owner) -> io::Result<Self> {
        let memory = open(pid)?;
        let call = Call::new(None, (Links::Follow, Wants::Memory), false);
        let cause = WaitCause { file: UnreadFile::Process(pid), owner };
        let socket = client::connect(call, &[memory.as_fd()], &cause)?;
        Ok(Self { pid, cause, socket })
    }

    fn ask(&self, range: MemoryRange) -> io::Result<MemoryBytes> {
        own_server::send(self.socket.as_fd(), &range, &[])?;
        client::receive(&self.socket, MAX_MEMORY_MESSAGE, &self.cause)
    }
}
