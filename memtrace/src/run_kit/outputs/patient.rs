//! Writer to pipes and terminals. They can stay full for an unlimited time.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::run_kit::forced_end;

/// Number of bytes that a writable pipe takes without blocking (`PIPE_BUF`, pipe(7)).
const CHUNK: usize = 4096;

/// Interval between two checks of a waiting writer: it may have to give up the output.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Unbuffered writer that waits until the descriptor takes data. It gives up if memtrace has to end.
pub(crate) struct Patient<D>(pub(crate) D);

impl<D: AsFd> Write for Patient<D> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], Some(&INTERVAL)) {
                Ok(0) if forced_end::gives_up_outputs() => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing reads it, and a second signal came"));
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(rustix::io::write(&self.0, &bytes[..bytes.len().min(CHUNK)])?),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
