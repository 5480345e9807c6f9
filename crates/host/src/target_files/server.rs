//! The server of files: forks a worker for each call. A worker that waits for a file system cannot always be killed, so
//! nobody waits for it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, waitpid};
use rustix::thread::set_name;

use super::protocol::{Call, MAX_CALL, Reply, Wants};
use super::worker;
use crate::own_server;
use crate::privileges::{self, CapabilitySet};

/// First argument by which the executable starts as a server.
pub const NAME: &str = "memtrace-files";

/// Maximum number of workers that wait for file systems: in all, because of one owner, and of one user with all mount
/// namespaces. With as many, the server opens nothing more.
const MOST_WORKERS: usize = 256;
const MOST_OF_OWNER: usize = 4;
const MOST_OF_USER: usize = 16;

/// Time in which a worker that has answered ends, on a busy machine too.
const TIME_TO_END: Duration = Duration::from_millis(100);

/// Time after which the kernel ends a worker, in seconds, if it can be ended. It is longer than any deadline of the client.
const MAX_TIME: u32 = 70;

/// Runs the server until its socket, standard input, is closed.
pub fn serve() -> ExitCode {
    own_server::begin();
    // Traces leave out processes with the name of memtrace.
    let _ = set_name(c"memtrace");
    // The files of other users, and nothing else.
    let kept = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    let limited = privileges::keep_capabilities(kept).and_then(|()| privileges::refuse_new_privileges());
    let served = limited.and_then(|()| privileges::forbid_dumps()).and_then(|()| calls(io::stdin().as_fd()));
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn calls(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Owners and users by the pid of the worker.
    let mut workers = Workers::default();
    loop {
        let received = own_server::receive::<Call>(socket, MAX_CALL);
        let (call, descriptors) = match received {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(()),
            // The client sees that the socket for the reply is closed.
            Err(error) if error.raw_os_error().is_none() => continue,
            Err(error) => return Err(error),
        };
        if workers.permit_in_time(&call)
            && let Some(worker) = fork(&call, descriptors)
        {
            workers.0.insert(worker, (call.owner, call.user));
        }
    }
}

/// Workers that have not ended: owners and users of their files by pid.
#[derive(Default)]
struct Workers(HashMap<i32, (u64, u64)>);

impl Workers {
    /// Returns true if there can be a worker for the call. A worker that has answered needs some time to end, longer than the
    /// client for its next call.
    fn permit_in_time(&mut self, call: &Call) -> bool {
        let start = Instant::now();
        loop {
            self.0.retain(|&worker, _| matches!(waitpid(Pid::from_raw(worker), WaitOptions::NOHANG), Ok(None)));
            if self.permit(call) {
                return true;
            }
            if start.elapsed() >= TIME_TO_END {
                return false;
            }
            thread::sleep(TIME_TO_END / 100);
        }
    }

    fn permit(&self, call: &Call) -> bool {
        let of_owner = self.0.values().filter(|&&(owner, _)| owner == call.owner).count();
        let of_user = self.0.values().filter(|&&(_, user)| user == call.user).count();
        self.0.len() < MOST_WORKERS && of_owner < MOST_OF_OWNER && of_user < MOST_OF_USER
    }
}

/// Forks a worker, and returns its pid; `None` if that fails.
fn fork(call: &Call, descriptors: Vec<OwnedFd>) -> Option<i32> {
    // SAFETY: this process has a single thread, so no lock is held by another thread.
    match unsafe { libc::fork() } {
        -1 => None,
        0 => {
            let _ = answer(call, descriptors);
            // SAFETY: the call ends the process without the exit handlers of the server.
            unsafe { libc::_exit(0) }
        }
        worker => Some(worker),
    }
}

fn answer(call: &Call, mut descriptors: Vec<OwnedFd>) -> io::Result<()> {
    if descriptors.len() < 2 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let reply = descriptors.remove(0);
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A worker that waits for ever does not hold the socket of the server.
    // SAFETY: this process does not use standard input any more.
    unsafe { libc::close(0) };
    // SAFETY: the default action of the signal ends the process.
    let limit_time = || _ = unsafe { libc::alarm(MAX_TIME) };
    limit_time();
    // The client closes its end when it does not wait any more.
    let progress = || own_server::send(reply.as_fd(), &Reply::Progress, &[]).is_ok();
    let _ = progress();
    if call.wants == Wants::Memory {
        return worker::serve_memory(reply.as_fd(), descriptors.remove(0), limit_time);
    }
    let (answer, opened) = worker::run(call, descriptors, progress);
    let descriptors: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
    own_server::send(reply.as_fd(), &Reply::Done(answer), &descriptors)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::super::protocol::Links;
    use super::*;

    #[test]
    fn workers_of_an_owner_count_until_they_have_ended() {
        let call = |owner, user| Call {
            path: None,
            links: Links::Follow,
            wants: Wants::Facts,
            by_user: true,
            owner,
            user,
            max_copy: 0,
        };
        let mut workers = Workers::default();
        // They end as soon as their input is closed.
        let mut start = |owner, user| {
            let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            workers.0.insert(child.id().cast_signed(), (owner, user));
            child
        };
        let mut waiting: Vec<_> = (0..MOST_OF_OWNER).map(|_| start(1, 1)).collect();
        assert!(!workers.permit_in_time(&call(1, 1)));
        assert!(workers.permit_in_time(&call(2, 1)) && workers.permit_in_time(&call(2, 2)));
        drop(waiting[0].stdin.take());
        assert!(workers.permit_in_time(&call(1, 1)));
        waiting.iter_mut().for_each(|child| _ = child.kill());
        waiting.iter_mut().for_each(|child| _ = child.wait());
    }
}
