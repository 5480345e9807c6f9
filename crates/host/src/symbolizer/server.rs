//! The server: a process without privileges that forks a worker for each request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Instant;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

use super::protocol::{Call, MAX_DATAGRAM, Outcome};
use super::{sandbox, worker};
use crate::own_server;
use crate::procfs::{exits_within, open_pidfd, time_without_processor};

/// First argument that starts the executable as this server.
pub const NAME: &str = "memtrace-symbolizer";

/// Runs the server until its socket, standard input, is closed.
pub fn serve() -> ExitCode {
    own_server::begin();
    let socket = io::stdin();
    let served = sandbox::give_up_privileges().and_then(|()| requests(socket.as_fd()));
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn requests(socket: BorrowedFd<'_>) -> io::Result<()> {
    while let Some((call, descriptors)) = own_server::receive(socket, MAX_DATAGRAM)? {
        let outcome = run(call, descriptors).unwrap_or(Outcome::Crashed);
        own_server::send(socket, &outcome, &[])?;
    }
    Ok(())
}

/// Forks a worker, and waits until it has ended.
fn run(call: Call, descriptors: Vec<OwnedFd>) -> io::Result<Outcome> {
    // SAFETY: this process has a single thread, so no lock is held by another thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let is_done = worker::run(call, descriptors).is_ok();
            // SAFETY: the call ends the process without the exit handlers of the server.
            unsafe { libc::_exit(if is_done { 0 } else { 1 }) }
        }
        worker => {
            // The worker has the only write end of the pipe for its answer.
            drop(descriptors);
            let handle = open_pidfd(model_pid(worker));
            let has_ended = handle.map(|handle| ends_in_time(handle.as_fd(), worker, call));
            let worker = Pid::from_raw(worker).ok_or(io::ErrorKind::InvalidData)?;
            if !matches!(has_ended, Ok(true)) {
                kill_process(worker, Signal::KILL)?;
            }
            let ended = waitpid(Some(worker), WaitOptions::empty())?;
            let status = ended.map_or(Outcome::Crashed, |(_, status)| outcome(status));
            Ok(if has_ended? { status } else { Outcome::Timeout })
        }
    }
}

/// Waits until a worker has ended, or its deadline has passed. Returns true if it has ended.
fn ends_in_time(handle: BorrowedFd<'_>, worker: i32, call: Call) -> bool {
    let (start, mut limit) = (Instant::now(), call.deadline());
    loop {
        if exits_within(handle, limit.saturating_sub(start.elapsed())) {
            return true;
        }
        limit = call.deadline() + time_without_processor(model_pid(worker)).min(call.max_delay());
        if start.elapsed() >= limit {
            return false;
        }
    }
}

fn model_pid(pid: i32) -> memtrace_model::Pid {
    memtrace_model::Pid(pid.cast_unsigned())
}

fn outcome(status: WaitStatus) -> Outcome {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Outcome::Answered,
        // The limit of processor time.
        (_, Some(libc::SIGXCPU)) => Outcome::Timeout,
        // Rust aborts when an allocation fails. Nothing else aborts the worker: it resets the handlers of SIGSEGV and SIGBUS, so
        // after a stack overflow or a truncated file, one of these signals ends it.
        (_, Some(libc::SIGABRT)) => Outcome::Memory,
        _ => Outcome::Crashed,
    }
}
