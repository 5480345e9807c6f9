//! The server of files: forks a worker for each call. A worker that waits for a file system cannot always be killed, so the
//! server does not wait for it.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_parent_process_death_signal, waitpid};
use rustix::thread::set_name;

use super::protocol::{Call, MAX_CALL, Reply, Wants};
use super::worker;
use crate::own_server;
use crate::privileges::{self, CapabilitySet};
use crate::procfs::BlockedTime;

/// First argument that starts the executable as this server.
pub const NAME: &str = "memtrace-files";

/// Maximum number of workers. At this limit and the following ones, the server accepts no further calls.
const MOST_WORKERS: usize = 256;
/// Maximum number of workers that wait for files of one owner.
const MOST_OF_OWNER: usize = 4;
/// Maximum number of workers that wait for files of one user, in all mount namespaces.
const MOST_OF_USER: usize = 16;

/// Time limit for the end of other workers, if there are too many for a call.
const TIME_TO_END: Duration = Duration::from_millis(100);

/// Time limit for further attempts to fork, if there are too many processes.
const TIME_TO_FORK: Duration = Duration::from_millis(500);

/// Time in seconds until the kernel ends a worker, if it can. The time is longer than any deadline of the client.
const MAX_TIME: u32 = 70;

/// Runs the server until its socket, standard input, is closed.
pub fn serve() -> ExitCode {
    own_server::begin();
    // The name would otherwise be the name of the link to the executable in procfs.
    let _ = set_name(c"memtrace");
    // Capabilities for the files of other users, and no others.
    let kept = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    let limited = privileges::keep_capabilities(kept).and_then(|()| privileges::refuse_new_privileges());
    let served = limited.and_then(|()| privileges::forbid_dumps()).and_then(|()| calls(io::stdin().as_fd()));
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn calls(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut workers = Workers::new()?;
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
            && let Some(worker) = workers.fork_in_time(&call, descriptors)
        {
            workers.running.insert(worker, Some((call.owner, call.user)));
        }
    }
}

/// Workers that have not ended.
struct Workers {
    /// Owner and user of each worker's file, by pid; `None` if the worker has its answer, and waits for no file system any
    /// more.
    running: HashMap<i32, Option<(u64, u64)>>,
    /// Read end of the pipe that gets the pid of each worker before its answer. On a busy machine, a client can send many calls
    /// before the workers of its last calls have ended.
    answered: OwnedFd,
    /// Write end of the same pipe.
    answers: OwnedFd,
}

impl Workers {
    fn new() -> io::Result<Self> {
        let (answered, answers) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { running: HashMap::new(), answered, answers })
    }

    /// Returns true if there can be a worker for the call. Waits for a short time: a worker that serves memory sends no pid to
    /// the pipe, and may not have ended when its client makes the next call.
    fn permit_in_time(&mut self, call: &Call) -> bool {
        self.within(TIME_TO_END, |workers| workers.permit(call).then_some(())).is_some()
    }

    /// Forks a worker, and returns its pid; `None` if there are too many processes on the machine or in the control group. In
    /// this case, [`Reply::NoWorker`] tells the client that the file is not the reason.
    fn fork_in_time(&mut self, call: &Call, mut descriptors: Vec<OwnedFd>) -> Option<i32> {
        let worker = self.within(TIME_TO_FORK, |workers| fork(call, &mut descriptors, &workers.answers));
        if let (None, Some(reply)) = (worker, descriptors.first()) {
            let _ = own_server::send(reply.as_fd(), &Reply::NoWorker, &[]);
        }
        worker
    }

    /// Tries `attempt` for `time`, until it has a result. Before each attempt, reaps the workers that have ended, to free their
    /// pids.
    fn within<T>(&mut self, time: Duration, mut attempt: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        let start = Instant::now();
        loop {
            self.update();
            if let Some(result) = attempt(self) {
                return Some(result);
            }
            if start.elapsed() >= time {
                return None;
            }
            thread::sleep(time / 100);
        }
    }

    fn update(&mut self) {
        let mut pid = [0; 4];
        // Each message has the size of the buffer, so it is read as a whole.
        while rustix::io::read(&self.answered, &mut pid) == Ok(pid.len()) {
            if let Some(worker) = self.running.get_mut(&i32::from_ne_bytes(pid)) {
                *worker = None;
            }
        }
        self.running.retain(|&worker, _| matches!(waitpid(Pid::from_raw(worker), WaitOptions::NOHANG), Ok(None)));
    }

    fn permit(&self, call: &Call) -> bool {
        let waiting = || self.running.values().flatten();
        let of_owner = waiting().filter(|&&(owner, _)| owner == call.owner).count();
        let of_user = waiting().filter(|&&(_, user)| user == call.user).count();
        self.running.len() < MOST_WORKERS && of_owner < MOST_OF_OWNER && of_user < MOST_OF_USER
    }
}

/// Tells the server that this worker waits for no file system any more.
fn report_answer(answers: &OwnedFd) {
    // If the pipe is full, the worker counts until it has ended.
    let _ = rustix::io::write(answers, &getpid().as_raw_nonzero().get().to_ne_bytes());
}

/// Forks a worker, and returns its pid; `None` if that fails.
fn fork(call: &Call, descriptors: &mut Vec<OwnedFd>, answers: &OwnedFd) -> Option<i32> {
    // SAFETY: this process has a single thread, so no lock is held by another thread.
    match unsafe { libc::fork() } {
        -1 => None,
        0 => {
            let _ = answer(call, mem::take(descriptors), answers);
            // SAFETY: the call ends the process without the exit handlers of the server.
            unsafe { libc::_exit(0) }
        }
        worker => Some(worker),
    }
}

fn answer(call: &Call, mut descriptors: Vec<OwnedFd>, answers: &OwnedFd) -> io::Result<()> {
    if descriptors.len() < 2 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let reply = descriptors.remove(0);
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A worker that waits for ever must not keep the socket of the server open.
    // SAFETY: this process does not use standard input any more.
    unsafe { libc::close(0) };
    // SAFETY: the default action of the signal ends the process.
    let limit_time = || _ = unsafe { libc::alarm(MAX_TIME) };
    limit_time();
    // After the client has stopped waiting, its end is closed, and the send fails.
    let progress = || own_server::send(reply.as_fd(), &Reply::Progress, &[]).is_ok();
    let _ = progress();
    if call.wants == Wants::Memory {
        return worker::serve_memory(reply.as_fd(), descriptors.remove(0), limit_time);
    }
    let blocked = BlockedTime::of_this_thread();
    let (answer, opened) = worker::run(call, descriptors, progress);
    report_answer(answers);
    let descriptors: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
    own_server::send(reply.as_fd(), &Reply::Done(answer, blocked.elapsed()), &descriptors)
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
        let mut workers = Workers::new().unwrap();
        // They end as soon as their input is closed.
        let start = |workers: &mut Workers, owner, user| {
            let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            workers.running.insert(child.id().cast_signed(), Some((owner, user)));
            child
        };
        let mut waiting: Vec<_> = (0..MOST_OF_OWNER).map(|_| start(&mut workers, 1, 1)).collect();
        assert!(!workers.permit_in_time(&call(1, 1)));
        assert!(workers.permit_in_time(&call(2, 1)) && workers.permit_in_time(&call(2, 2)));
        drop(waiting[0].stdin.take());
        assert!(workers.permit_in_time(&call(1, 1)));
        // A worker that has its answer does not count, even if it has no time to end.
        let full = start(&mut workers, 1, 1);
        assert!(!workers.permit_in_time(&call(1, 1)));
        rustix::io::write(&workers.answers, &full.id().to_ne_bytes()).unwrap();
        assert!(workers.permit_in_time(&call(1, 1)));
        waiting.push(full);
        waiting.iter_mut().for_each(|child| _ = child.kill());
        waiting.iter_mut().for_each(|child| _ = child.wait());
    }
}
