//! Client of the server of files, with a deadline for each file.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::AtFlags;
use rustix::thread::CapabilitySet;
use serde::de::DeserializeOwned;

use super::protocol::{Answer, Call, Facts, MAX_PATH, MAX_REPLY, Reply, Wants};
use super::server::NAME;
use super::worker;
use crate::copy_limit::{MAX_COPY, add_copy, max_copy};
use crate::own_server::{self, OwnServer};
use crate::procfs::locks;
use crate::unread_files::{self, UnreadFile};

/// Time limit for an answer of a file system: from the start of a worker until the file is open, and for each part of a copy.
const DEADLINE: Duration = Duration::from_secs(2);

/// Time limit for a whole copy.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Time limit for the start of a worker on a busy machine, including the start of the server.
const START: Duration = Duration::from_secs(10);

/// Maximum duration of a wait for a file system that does not count as slow. The time for copied bytes is added.
const USUAL: Duration = Duration::from_millis(500);
/// Rate of a copy that does not count as slow, in bytes per second.
const BYTES_PER_SECOND: u64 = 32 << 20;

/// Interval of a waiting thread's checks whether memtrace is to end.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of files of one owner without an answer. At this limit and the following ones, no worker looks up further
/// files.
const MOST_OF_OWNER: u32 = 4;
/// Maximum number of files of one user without an answer, in all mount namespaces: a user can have many namespaces.
const MOST_OF_USER: u32 = 8;
/// Maximum number of files of all owners without an answer.
const MOST_OF_ALL: u32 = 32;
/// Half of these files are forgiven at this interval.
const FORGIVEN_EACH: Duration = Duration::from_secs(60);

static STATE: Mutex<State> = Mutex::new(State { is_stopped: None, server: None, timeouts: None });

struct State {
    /// Returns true if memtrace is to end; `None` if files are looked up in this process.
    is_stopped: Option<fn() -> bool>,
    server: Option<OwnServer>,
    timeouts: Option<Timeouts>,
}

/// Files without an answer.
struct Timeouts {
    of_owners: HashMap<Owner, u32>,
    /// Time of slow answers that does not count as a timeout yet.
    slow: HashMap<Owner, Duration>,
    forgiven: Instant,
}

/// Cause of a wait for a file.
#[derive(Clone, Debug)]
pub(super) struct WaitCause {
    pub(super) file: UnreadFile,
    pub(super) owner: Owner,
}

/// Owner of files that may not answer. Limits apply to each owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// User who is responsible for the process, and mount namespace of the process: the users of two containers can have the
    /// same number.
    User(u32, Option<PathBuf>),
    /// Device number of the file system of an open file.
    Device(u64),
    /// memtrace itself.
    Own,
}

impl Owner {
    fn without_namespace(&self) -> Self {
        match self {
            Self::User(user, _) => Self::User(*user, None),
            other => other.clone(),
        }
    }
}

fn number(owner: &Owner) -> u64 {
    let mut hasher = DefaultHasher::new();
    owner.hash(&mut hasher);
    hasher.finish()
}

/// From now on, a server looks up the files that may never answer. The executable of this process must call [`super::serve`] if
/// its first argument is [`NAME`]. As soon as `is_stopped` returns true, nothing waits for a file. Reads of files in `/proc/PID`
/// get a deadline, too. The threads that make these reads have at most the capabilities `capabilities`.
pub fn enable(is_stopped: fn() -> bool, capabilities: CapabilitySet) {
    lock().is_stopped = Some(is_stopped);
    locks::enable(is_stopped, capabilities);
}

/// Returns true if a server looks up files.
pub(super) fn is_enabled() -> bool {
    lock().is_stopped.is_some()
}

/// Executes a call within the deadline. `descriptors` belong to the call.
pub(super) fn ask(call: Call, descriptors: &[BorrowedFd<'_>], cause: &WaitCause) -> io::Result<(Answer, Vec<OwnedFd>)> {
    if call.path.as_ref().is_some_and(|path| path.len() >= MAX_PATH) {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    if !is_enabled() {
        let descriptors = descriptors.iter().map(BorrowedFd::try_clone_to_owned).collect::<io::Result<_>>()?;
        return Ok(worker::run(&Call { max_copy: MAX_COPY, ..call }, descriptors, || true));
    }
    let call = Call { max_copy: if call.wants == Wants::Content { max_copy() } else { 0 }, ..call };
    let socket = start_worker(call, descriptors, cause)?;
    let (answer, blocked, opened) = counted(wait_for_answer(socket.as_fd()), cause)?;
    let copied = answer.found.map_or(0, |(facts, _)| if answer.error.is_none() { facts.size } else { 0 });
    lock().timeouts().add_slow(&cause.owner, blocked, copied);
    if let Some(copy) = opened.get(1) {
        // Add the size of the copy: the file system can report any size for the file itself.
        add_copy(Facts::read(copy, AtFlags::empty()).map_or(MAX_COPY, |facts| facts.size));
    }
    Ok((answer, opened))
}

/// Starts a worker for a call, and returns the socket to it as soon as it runs.
pub(super) fn connect(call: Call, descriptors: &[BorrowedFd<'_>], cause: &WaitCause) -> io::Result<OwnedFd> {
    let socket = start_worker(call, descriptors, cause)?;
    let started = wait(socket.as_fd(), Instant::now() + START).and_then(|()| receive_now::<Reply>(&socket, MAX_REPLY));
    let started = started.and_then(|reply| if matches!(reply, Reply::NoWorker) { Err(no_worker()) } else { Ok(()) });
    counted(started, cause).map(|()| socket)
}

/// Receives a message of a worker, within the deadline.
pub(super) fn receive<T: DeserializeOwned>(socket: &OwnedFd, most: usize, cause: &WaitCause) -> io::Result<T> {
    counted(wait(socket.as_fd(), Instant::now() + DEADLINE), cause)?;
    receive_now(socket, most)
}

fn receive_now<T: DeserializeOwned>(socket: &OwnedFd, most: usize) -> io::Result<T> {
    let received = own_server::receive(socket.as_fd(), most)?;
    received.map(|(message, _)| message).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}

fn start_worker(mut call: Call, descriptors: &[BorrowedFd<'_>], cause: &WaitCause) -> io::Result<OwnedFd> {
    let WaitCause { file, owner } = cause;
    (call.owner, call.user) = (number(owner), number(&owner.without_namespace()));
    if !lock().timeouts().permit(owner) {
        unread_files::add(file.clone());
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (socket, end) = own_server::pair()?;
    lock().send(&call, &[&[end.as_fd()], descriptors].concat())?;
    Ok(socket)
}

/// Returns the error for a file that no worker looks up, because there are too many processes.
fn no_worker() -> io::Error {
    io::ErrorKind::ResourceBusy.into()
}

/// Counts the file if it was not read in time. Only a timeout counts for its owner: a missing worker, or the end of memtrace,
/// is not the owner's fault.
fn counted<T>(result: io::Result<T>, WaitCause { file, owner }: &WaitCause) -> io::Result<T> {
    result.map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::TimedOut => {
                lock().timeouts().add(owner);
                io::ErrorKind::TimedOut
            }
            // Callers expect the same error for all files that were not read in time.
            io::ErrorKind::ResourceBusy => io::ErrorKind::TimedOut,
            io::ErrorKind::Interrupted => io::ErrorKind::Interrupted,
            _ => return error,
        };
        unread_files::add(file.clone());
        kind.into()
    })
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Sends a call to the server, which is started again if it has ended.
    fn send(&mut self, call: &Call, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if let Some(server) = &self.server
            && own_server::send(server.socket(), call, descriptors).is_ok()
        {
            return Ok(());
        }
        let server = self.server.insert(OwnServer::start(NAME)?);
        own_server::send(server.socket(), call, descriptors)
    }

    fn timeouts(&mut self) -> &mut Timeouts {
        self.timeouts.get_or_insert_with(Timeouts::new)
    }
}

impl Timeouts {
    fn new() -> Self {
        Self { of_owners: HashMap::new(), slow: HashMap::new(), forgiven: Instant::now() }
    }

    /// Adds the time of an answer with a copy of `copied` bytes. Slow answers that take [`DEADLINE`] together count as a
    /// timeout, so that a server that is always just in time does not delay memtrace for ever.
    fn add_slow(&mut self, owner: &Owner, time: Duration, copied: u64) {
        let usual = USUAL + Duration::from_secs(copied / BYTES_PER_SECOND);
        let Some(late) = time.checked_sub(usual) else { return };
        let mut slow = self.slow.remove(owner).unwrap_or_default() + late;
        while slow >= DEADLINE {
            slow -= DEADLINE;
            self.add(owner);
        }
        self.slow.insert(owner.clone(), slow);
    }

    fn permit(&mut self, owner: &Owner) -> bool {
        if self.forgiven.elapsed() >= FORGIVEN_EACH {
            self.forgiven = Instant::now();
            self.of_owners.values_mut().for_each(|count| *count /= 2);
            self.of_owners.retain(|_, count| *count > 0);
            self.slow.clear();
        }
        let user = owner.without_namespace();
        let is_of_user = |(other, _): &(&Owner, &u32)| other.without_namespace() == user;
        let of_owner = self.of_owners.get(owner).copied().unwrap_or_default();
        let of_user: u32 = self.of_owners.iter().filter(is_of_user).map(|(_, count)| count).sum();
        let of_all: u32 = self.of_owners.values().sum();
        of_owner < MOST_OF_OWNER && of_user < MOST_OF_USER && of_all < MOST_OF_ALL
    }

    fn add(&mut self, owner: &Owner) {
        *self.of_owners.entry(owner.clone()).or_default() += 1;
    }
}

/// Waits for the answer of a worker. Returns it with the time that the worker waited for the file system, and the descriptors.
fn wait_for_answer(socket: BorrowedFd<'_>) -> io::Result<(Answer, Duration, Vec<OwnedFd>)> {
    let start = Instant::now();
    let mut end = start + START;
    loop {
        wait(socket, end.min(start + MAX_TIME))?;
        match own_server::receive(socket, MAX_REPLY)? {
            Some((Reply::Done(answer, blocked), descriptors)) => return Ok((answer, blocked, descriptors)),
            Some((Reply::Progress, _)) => end = Instant::now() + DEADLINE,
            Some((Reply::NoWorker, _)) => return Err(no_worker()),
            // The server has too many workers that wait, or the worker was killed.
            None => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Waits until a socket can be read.
fn wait(socket: BorrowedFd<'_>, end: Instant) -> io::Result<()> {
    let is_stopped = lock().is_stopped;
    loop {
        if is_stopped.is_some_and(|is_stopped| is_stopped()) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left.min(STOP_INTERVAL)).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Links;
    use super::*;

    fn in_namespace(user: u32, namespace: u32) -> Owner {
        Owner::User(user, Some(format!("mnt:[{namespace}]").into()))
    }

    /// Lets files of `owner` time out until no further one is looked up. Returns their number.
    fn exhaust(timeouts: &mut Timeouts, owner: &Owner) -> u32 {
        let mut count = 0;
        while timeouts.permit(owner) {
            timeouts.add(owner);
            count += 1;
        }
        count
    }

    #[test]
    fn paths_have_a_maximum_length() {
        let root: OwnedFd = rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let cause = WaitCause { file: UnreadFile::Other, owner: Owner::Own };
        let found = |length: usize| {
            // No part of the path is too long.
            let path = b"memtrace-none/".iter().copied().cycle().take(length).collect();
            let call = Call::new(Some(path), (Links::Follow, Wants::Facts), false);
            let (answer, _) = ask(call, &[root.as_fd()], &cause)?;
            answer.found.map(drop).map_err(io::Error::from_raw_os_error)
        };
        for (length, error) in [(14, libc::ENOENT), (MAX_PATH - 1, libc::ENOENT), (MAX_PATH, libc::ENAMETOOLONG)] {
            assert_eq!(found(length).unwrap_err().raw_os_error(), Some(error), "{length}");
        }
    }

    #[test]
    fn owner_with_timeouts_does_not_cost_others_their_files() {
        let mut timeouts = Timeouts::new();
        assert_eq!(exhaust(&mut timeouts, &in_namespace(1, 1)), MOST_OF_OWNER);
        // Further namespaces of the same user.
        let others: u32 = (2..100).map(|namespace| exhaust(&mut timeouts, &in_namespace(1, namespace))).sum();
        assert_eq!(others, MOST_OF_USER - MOST_OF_OWNER);
        assert_eq!(exhaust(&mut timeouts, &in_namespace(2, 1)), MOST_OF_OWNER);
        timeouts.forgiven = Instant::now().checked_sub(FORGIVEN_EACH).unwrap();
        assert!(timeouts.permit(&in_namespace(1, 1)));
    }

    #[test]
    fn file_without_a_worker_is_not_the_fault_of_its_owner() {
        let file = UnreadFile::Object("without a worker".into());
        let cause = WaitCause { file: file.clone(), owner: in_namespace(7, 7) };
        for _ in 0..=MOST_OF_OWNER {
            let error = counted::<()>(Err(no_worker()), &cause).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(unread_files::count_of(&file), u64::from(MOST_OF_OWNER) + 1);
        assert!(lock().timeouts().permit(&cause.owner));
    }

    #[test]
    fn server_that_is_always_just_in_time_has_timeouts() {
        let mut timeouts = Timeouts::new();
        let owner = in_namespace(1, 1);
        timeouts.add_slow(&owner, Duration::from_millis(400), 0);
        timeouts.add_slow(&owner, Duration::from_secs(32), 1 << 30);
        assert!(timeouts.of_owners.is_empty() && timeouts.slow.is_empty(), "usual times");
        let count = (1..100).find(|_| {
            timeouts.add_slow(&owner, Duration::from_millis(1900), 0);
            !timeouts.permit(&owner)
        });
        assert_eq!(count, Some(6));
        assert!(timeouts.permit(&in_namespace(2, 1)));
    }

    #[test]
    fn all_timeouts_together_are_limited() {
        let mut timeouts = Timeouts::new();
        (0..u64::from(MOST_OF_ALL)).for_each(|device| timeouts.add(&Owner::Device(device)));
        assert!(!timeouts.permit(&Owner::Own));
    }
}
