//! Writer to pipes and terminals, which can be full for any time.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::run_kit::forced_end;

/// Number of bytes that a pipe takes without waiting when it can be written (`PIPE_BUF`, pipe(7)).
const CHUNK: usize = 4096;

/// Interval at which a waiting writer looks if the output is to be given up.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Waits until the descriptor takes data, unless memtrace has to end. There is no buffer.
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
