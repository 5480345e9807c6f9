//! The server's client, in the tracing process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use memtrace_model::{Pid, Unnamed, VirtOffset};
use memtrace_object::symbolize::{FunctionFinder, FunctionsAtAddress, NameFiles};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::passed_file::{MAX_COPY, PassedFile, memory_with};
use super::protocol::{Answer, Call, MAX_DATAGRAM, Outcome, Request};
use super::server::NAME;
use crate::own_server::{self, OwnServer, decode, encode};
use crate::procfs;

/// Time that each object may take, and additional time for each of its bytes.
const TIME_PER_OBJECT: Duration = Duration::from_secs(6);
const BYTES_PER_SECOND: u64 = 32 << 20;
/// Maximum time that an object may take, whatever its size.
const MAX_TIME: Duration = Duration::from_secs(60);
/// Time that the objects of a user may lose by their deadlines. After it, each has the shortest deadline only.
const LOST_TIME: Duration = Duration::from_secs(6);
const SHORTEST_TIME: Duration = Duration::from_millis(200);
/// Lost time of a user after which no further object of the user is read.
const MOST_LOST_TIME: Duration = Duration::from_secs(7);
/// The same times for all objects that users can have made. Who mounts file systems in a user namespace, and gives files to
/// its users, is many users.
const LOST_TIME_OF_ALL: Duration = Duration::from_secs(6);
const MOST_LOST_TIME_OF_ALL: Duration = Duration::from_secs(9);
/// Time in which the server must tell how a worker has ended.
const GRACE: Duration = Duration::from_secs(2);
/// Address space that a worker may use in addition to the files that it maps. Debug information takes several times
/// its own size.
const MEMORY: u64 = 384 << 20;
const MEMORY_PER_BYTE: u64 = 3;
const MAX_MEMORY: u64 = 8 << 30;
/// Maximum length of an answer, and its part for each address.
const MAX_ANSWER: usize = 64 << 20;
const ANSWER: usize = 1 << 20;
const ANSWER_PER_ADDRESS: usize = 64 << 10;
/// Least limit of the size of a copy.
const LEAST_COPY: u64 = 64 << 20;

/// Interval at which a waiting process looks if the search is to end.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Finds functions in a child process without privileges.
#[derive(Debug)]
pub struct SymbolizerProcess(RefCell<State>);

impl SymbolizerProcess {
    /// Creates a finder. As soon as `is_stopped` returns true, it finds nothing more ([`Unnamed::NamesSkipped`]).
    #[must_use]
    pub fn new(is_stopped: fn() -> bool) -> Self {
        Self(RefCell::new(State { server: None, is_stopped, lost: BTreeMap::new() }))
    }
}

impl Default for SymbolizerProcess {
    fn default() -> Self {
        Self::new(|| false)
    }
}

#[derive(Debug)]
struct State {
    server: Option<OwnServer>,
    is_stopped: fn() -> bool,
    /// Time that was lost by objects, by their owner: nobody can cost the names of others' objects.
    lost: BTreeMap<Owner, Duration>,
}

/// File system and user of an object. A container can have a root user of its own.
type Owner = (u64, u32);

/// Why an object has no names.
enum Lost {
    Timeout,
    Memory,
    Crashed(String),
    Skipped,
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::FileTooLarge => Self::Memory,
            io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Crashed(error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for Lost {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl FunctionFinder for SymbolizerProcess {
    fn find(&self, files: &NameFiles, addresses: &[VirtOffset]) -> Vec<FunctionsAtAddress> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let reason = match self.0.borrow_mut().find(files, addresses) {
            Ok(functions) => return functions,
            Err(Lost::Timeout) => Unnamed::NamesTimeout,
            Err(Lost::Memory) => Unnamed::NamesMemory,
            Err(Lost::Skipped) => Unnamed::NamesSkipped,
            Err(Lost::Crashed(message)) => {
                log::info!("symbolization: {message}");
                Unnamed::NamesCrashed
            }
        };
        vec![Err(reason); addresses.len()]
    }
}

impl State {
    fn find(&mut self, files: &NameFiles, addresses: &[VirtOffset]) -> Result<Vec<FunctionsAtAddress>, Lost> {
        if (self.is_stopped)() {
            return Err(Lost::Skipped);
        }
        let metadata = files.object.metadata()?;
        let owner = (metadata.dev(), metadata.uid());
        self.deadline(owner, 0).ok_or(Lost::Timeout)?;
        let start = Instant::now();
        let found = self.ask(owner, files, addresses);
        if found.is_err() {
            *self.lost.entry(owner).or_default() += start.elapsed();
        }
        found
    }

    fn ask(
        &mut self,
        owner: Owner,
        files: &NameFiles,
        addresses: &[VirtOffset],
    ) -> Result<Vec<FunctionsAtAddress>, Lost> {
        let mut left = max_copy();
        let mut pass = |file: &File| {
            let passed = PassedFile::of(file, left)?;
            left = left.saturating_sub(passed.copied);
            io::Result::Ok(passed)
        };
        let object = pass(&files.object)?;
        let debug_file = files.debug_file.as_ref().map(&mut pass).transpose()?;
        let supplementary = files.supplementary.as_ref().map(&mut pass).transpose()?;
        let others = || debug_file.iter().chain(&supplementary);
        let bytes = others().fold(object.size, |bytes, file| bytes.saturating_add(file.size));
        let stored = others().fold(object.stored, |bytes, file| bytes.saturating_add(file.stored));
        let request = memory_with(&encode(&Request::new(files.reads, debug_file.is_some(), addresses))?)?;
        let (answer, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
        let deadline = self.deadline(owner, stored).ok_or(Lost::Timeout)?;
        let call = Call {
            deadline_ms: u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX),
            memory: MEMORY + stored.saturating_mul(MEMORY_PER_BYTE).min(MAX_MEMORY) + bytes.min(1 << 40),
        };
        let mut descriptors = vec![request.as_fd(), pipe.as_fd(), object.descriptor.as_fd()];
        descriptors.extend(others().map(|file| file.descriptor.as_fd()));
        self.call(call, &descriptors)?;
        drop(descriptors);
        drop(pipe);
        let latest = Instant::now() + call.deadline() + call.max_delay() + GRACE;
        let end = Limit { at: latest, is_stopped: self.is_stopped };
        let most = (ANSWER + ANSWER_PER_ADDRESS.saturating_mul(addresses.len())).min(MAX_ANSWER);
        let bytes = read_answer(answer, end, most);
        let outcome =
            bytes.and_then(|bytes| Ok((bytes, outcome(self.server()?, Limit { at: end.at + GRACE, ..end })?)));
        // If it fails, the server itself hangs, or has ended.
        let (bytes, outcome) = outcome.inspect_err(|_| self.server = None)?;
        match outcome {
            Outcome::Answered => {
                let answer = decode::<Answer>(&bytes)?.into_functions(addresses.len());
                answer.ok_or_else(|| Lost::Crashed("an answer of another length".into()))
            }
            Outcome::Timeout => Err(Lost::Timeout),
            Outcome::Memory => Err(Lost::Memory),
            Outcome::Crashed => Err(Lost::Crashed("the process that reads names was killed by a file".into())),
        }
    }

    /// Calls the server. If it has ended since the last call, it is started again: this object is not the reason.
    fn call(&mut self, call: Call, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if let Some(server) = &self.server
            && own_server::send(server.socket(), &call, descriptors).is_ok()
        {
            return Ok(());
        }
        self.server = None;
        own_server::send(self.server()?.socket(), &call, descriptors)
    }

    /// Returns the time that files with this number of stored bytes may take; `None` if they are not read.
    fn deadline(&self, owner: Owner, bytes: u64) -> Option<Duration> {
        let lost = self.lost.get(&owner).copied().unwrap_or_default();
        let by_users: Duration =
            self.lost.iter().filter(|&(&owner, _)| !is_of_root(owner)).map(|(_, &lost)| lost).sum();
        let by_users = if is_of_root(owner) { Duration::ZERO } else { by_users };
        match (lost, by_users) {
            (lost, all) if lost >= MOST_LOST_TIME || all >= MOST_LOST_TIME_OF_ALL => None,
            (lost, all) if lost >= LOST_TIME || all >= LOST_TIME_OF_ALL => Some(SHORTEST_TIME),
            _ => Some((TIME_PER_OBJECT + Duration::from_secs(bytes / BYTES_PER_SECOND)).min(MAX_TIME)),
        }
    }

    fn server(&mut self) -> io::Result<&OwnServer> {
        match &mut self.server {
            Some(server) => Ok(server),
            none => Ok(none.insert(OwnServer::start(NAME)?)),
        }
    }
}

/// Returns true for a file of root on a disk. No user can make one, in whatever namespaces. Device numbers of other file
/// systems have the major number 0 (`get_anon_bdev`, fs/super.c).
fn is_of_root((device, user): Owner) -> bool {
    user == 0 && rustix::fs::major(device) != 0
}

/// Returns the maximum size of copies in bytes: a half of the memory that is left to the cgroup of memtrace. The page cache
/// of the cgroup can be reclaimed.
fn max_copy() -> u64 {
    let Some(group) = procfs::cgroup_memory(Pid(std::process::id())) else { return MAX_COPY };
    let Some(limit) = group.limit else { return MAX_COPY };
    let used = limit.current.0.saturating_sub(group.file.map_or(0, |file| file.0));
    (limit.most.0.saturating_sub(used) / 2).clamp(LEAST_COPY, MAX_COPY)
}

/// Reads an answer until the worker ends.
fn read_answer(answer: OwnedFd, end: Limit, most: usize) -> Result<Vec<u8>, Lost> {
    let (mut pipe, mut bytes) = (File::from(answer), Vec::new());
    let mut buffer = vec![0; 1 << 16];
    loop {
        wait(pipe.as_fd(), end)?;
        match pipe.read(&mut buffer)? {
            0 => return Ok(bytes),
            length => bytes.extend_from_slice(&buffer[..length]),
        }
        if bytes.len() > most {
            return Err(Lost::Memory);
        }
    }
}

/// Returns how the worker of the last call has ended.
fn outcome(server: &OwnServer, end: Limit) -> Result<Outcome, Lost> {
    wait(server.socket(), end)?;
    let received = own_server::receive(server.socket(), MAX_DATAGRAM)?;
    received.map(|(outcome, _)| outcome).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof).into())
}

/// Limit of a wait.
#[derive(Clone, Copy)]
struct Limit {
    at: Instant,
    is_stopped: fn() -> bool,
}

/// Waits until a descriptor can be read.
fn wait(descriptor: BorrowedFd<'_>, end: Limit) -> Result<(), Lost> {
    loop {
        if (end.is_stopped)() {
            return Err(Lost::Skipped);
        }
        let left = end.at.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left.min(STOP_INTERVAL)).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Err(Lost::Timeout),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_grows_with_the_size_and_shrinks_after_losses() {
        let mut state = State { server: None, is_stopped: || false, lost: BTreeMap::new() };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(state.deadline((1, 7), 0), seconds(6));
        assert_eq!(state.deadline((1, 7), 320 << 20), seconds(16));
        assert_eq!(state.deadline((1, 7), u64::MAX), Some(MAX_TIME));
        state.lost.insert((1, 7), Duration::from_secs(6));
        assert_eq!(state.deadline((1, 7), 320 << 20), Some(SHORTEST_TIME));
        state.lost.insert((1, 7), Duration::from_secs(8));
        assert_eq!(state.deadline((1, 7), 0), None);
        state.lost.clear();
        state.lost.insert((1, 7), Duration::from_secs(5));
        assert_eq!(state.deadline((1, 0), 0), seconds(6));
    }

    #[test]
    fn objects_of_many_users_lose_a_limited_time() {
        let mut state = State { server: None, is_stopped: || false, lost: BTreeMap::new() };
        let (disk, usual) = (rustix::fs::makedev(254, 1), Some(TIME_PER_OBJECT));
        state.lost.insert((1, 1000), Duration::from_secs(3));
        state.lost.insert((2, 1001), Duration::from_secs(2));
        assert_eq!([(3, 0), (disk, 0)].map(|owner| state.deadline(owner, 0)), [usual; 2]);
        state.lost.insert((4, 0), Duration::from_secs(1));
        assert_eq!([(3, 0), (disk, 0)].map(|owner| state.deadline(owner, 0)), [Some(SHORTEST_TIME), usual]);
        state.lost.insert((5, 0), Duration::from_secs(3));
        assert_eq!([(3, 0), (disk, 0)].map(|owner| state.deadline(owner, 0)), [None, usual]);
        state.lost.insert((disk, 0), Duration::from_secs(8));
        assert_eq!(state.deadline((disk, 0), 0), None);
    }
}
