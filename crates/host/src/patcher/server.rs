//! The patcher: a process with one thread that changes other processes, and does nothing else.
//!
//! It works on one request at a time. When memtrace ends, its socket closes, and the patcher ends after the present request: a
//! signal for all processes of a service, or a kill of memtrace, does not interrupt it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use rustix::thread::set_name;

use super::architecture::{self, Worker};
use super::protocol::{MAX_MESSAGE, Request};
use crate::own_server;
use crate::privileges::{CapabilitySet, keep_capabilities};

/// Capabilities of the patcher: for ptrace(2) and the memory of other users, real-time priorities, seccomp filters of other
/// processes, and the links in `map_files`. Without CAP_IPC_LOCK, its stack could not grow after mlockall(2)
/// (`mlock_future_ok`, mm/mmap.c).
const CAPABILITIES: CapabilitySet = CapabilitySet::SYS_PTRACE
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::DAC_OVERRIDE);

/// Runs the patcher until its socket, standard input, is closed.
pub fn serve() -> ExitCode {
    begin_patcher();
    let socket = io::stdin();
    if requests(socket.as_fd()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prepares this process. It keeps the OOM score of memtrace: if it is killed in the middle of its work, system calls of the
/// patched process can fail.
fn begin_patcher() {
    own_server::isolate();
    // Pages that are in memory stay there, so that no stop waits for a disk.
    // SAFETY: the call takes a number.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) };
    if locked != 0 {
        log::debug!("the memory of the patcher is not locked: {}", io::Error::last_os_error());
    }
    if let Err(error) = keep_capabilities(CAPABILITIES) {
        log::debug!("the patcher keeps its capabilities: {error}");
    }
    let _ = set_name(c"memtrace-patch");
    architecture::arm_from_environment();
}

fn requests(socket: BorrowedFd<'_>) -> io::Result<()> {
    let worker = Worker::new()?;
    loop {
        let request = match own_server::receive::<Request>(socket, MAX_MESSAGE) {
            Ok(Some((request, _))) => request,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let (answer, file) = worker.answer(&request);
        let descriptors: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        own_server::send(socket, &answer, &descriptors)?;
        if worker.must_end() {
            return Ok(());
        }
    }
}
