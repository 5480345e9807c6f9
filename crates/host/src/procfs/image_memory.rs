//! Memory of a process, as `/proc/PID/mem` shows it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_model::{AbsAddr, Pid};

use super::process::proc_path;
use super::{kernel_files, locks};

/// Memory of the image that a process ran when [`Self::open`] was called.
///
/// The open file belongs to this memory (`proc_mem_open`, fs/proc/base.c). After an exec or the exit of the process, nothing can
/// be read, so that a reader never gets the memory of another image. In contrast to process_vm_readv(2), a read of a page that
/// the process shares since a fork does not make the kernel copy the page for the process.
#[derive(Clone, Debug)]
pub struct ImageMemory {
    pid: Pid,
    file: Arc<File>,
}

impl ImageMemory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    ///
    /// Permission is missing: this needs the same permission as ptrace(2). [`io::ErrorKind::TimedOut`] if the process holds a
    /// lock of its memory.
    pub fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, file: Arc::new(kernel_files::open(proc_path(pid, "mem"))?) })
    }

    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) const fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Lets `work` read the memory, in a thread that memtrace leaves behind if the process holds a lock of its memory.
    /// After `time`, nothing more is read.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if the process holds a lock of its memory.
    pub fn read_within<T: Send + 'static>(
        &self,
        time: Duration,
        work: impl FnOnce(&BoundedMemory) -> T + Send + 'static,
    ) -> io::Result<T> {
        let memory = BoundedMemory { file: Arc::clone(&self.file), deadline: Instant::now() + time };
        locks::read(self.pid, move || Ok(work(&memory)))
    }
}

/// Memory of a process that can be read until a deadline.
#[derive(Debug)]
pub struct BoundedMemory {
    file: Arc<File>,
    deadline: Instant,
}

impl BoundedMemory {
    /// Reads bytes from `address` on, up to the first page that cannot be read. Returns the number of bytes, which is at
    /// least 1 if `bytes` is not empty.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] after the deadline; [`io::ErrorKind::UnexpectedEof`] if the image has ended; another
    /// error if the first byte cannot be read.
    pub fn read_some(&self, address: AbsAddr, bytes: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.file.read_at(bytes, address.0)? {
            // The kernel reads nothing from a memory without users (`mem_rw`, fs/proc/base.c).
            0 if !bytes.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::fixtures::{Anonymous, Running};

    use super::*;

    const LATER: Duration = Duration::from_secs(60);

    fn read(memory: &ImageMemory, time: Duration, address: AbsAddr, length: usize) -> Result<Vec<u8>, io::ErrorKind> {
        let work = move |memory: &BoundedMemory| {
            let mut bytes = vec![0; length];
            let read = memory.read_some(address, &mut bytes).map_err(|error| error.kind())?;
            bytes.truncate(read);
            Ok(bytes)
        };
        memory.read_within(time, work).unwrap()
    }

    #[test]
    fn bytes_are_read_until_the_deadline() {
        let pages = Anonymous::new(8192);
        pages.write(4088, 7);
        let memory = ImageMemory::open(Pid(std::process::id())).unwrap();
        let expected = [&7_u64.to_ne_bytes()[..], &[0; 8]].concat();
        assert_eq!(read(&memory, LATER, AbsAddr(pages.start().0 + 4088), 16), Ok(expected));
        assert!(read(&memory, LATER, AbsAddr(8), 16).is_err());
        assert!(read(&memory, LATER, AbsAddr(u64::MAX - 7), 16).is_err());
        assert_eq!(read(&memory, Duration::ZERO, pages.start(), 1), Err(io::ErrorKind::TimedOut));
    }

    #[test]
    fn ended_image_cannot_be_read() {
        let running = Running::start("cat");
        let memory = ImageMemory::open(running.pid()).unwrap();
        running.end();
        assert_eq!(read(&memory, LATER, AbsAddr(4096), 1), Err(io::ErrorKind::UnexpectedEof));
    }
}
