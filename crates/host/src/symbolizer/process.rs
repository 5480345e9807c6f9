//! The server's client, in the tracing process.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use memtrace_model::{Bytes, Unnamed, VirtOffset, format};
use memtrace_object::symbolize::{FunctionFinder, FunctionsAtAddress, NameFiles};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::passed_file::{PassedFile, memory_with};
use super::protocol::{Call, MAX_DATAGRAM, Outcome, Request, decode_answer};
use super::server::NAME;
use crate::copy_limit::{add_copy, max_copy};
use crate::object_budget::{ObjectBudget, ObjectOwner, stored_bytes};
use crate::own_server::{self, OwnServer, encode};

/// Limits for the time of the objects: one for the objects of an owner, and one for the objects of all users. Each
/// limit grows with the size of the objects.
const TIME: Duration = Duration::from_secs(6);
/// Divisor of the time that an object costs if its names are found. The objects of a usual report must not use up the budget on
/// a slow machine: an emulated machine takes ten seconds for them.
const PART_OF_NAMED: u32 = 8;
/// Time limit for the server's message about the end of a worker.
const GRACE: Duration = Duration::from_secs(2);
/// Address space in bytes that a worker may use in addition to the files that it maps.
const MEMORY: u64 = 384 << 20;
/// Further address space for each stored byte of the files: debug information takes several times its own size.
const MEMORY_PER_BYTE: u64 = 3;
/// Maximum of this further address space in bytes.
const MAX_MEMORY: u64 = 8 << 30;
/// Maximum length of any answer in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// Part of the maximum length that does not depend on the number of addresses, in bytes.
const ANSWER: usize = 1 << 20;
/// Part of the maximum length for each address, in bytes.
const ANSWER_PER_ADDRESS: usize = 64 << 10;

/// Interval of the checks whether the search is to end.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Finds functions in a child process without privileges.
#[derive(Debug)]
pub struct SymbolizerProcess(RefCell<State>);

impl SymbolizerProcess {
    /// Creates a finder. As soon as `is_stopped` returns true, it finds nothing more ([`Unnamed::NamesSkipped`]).
    #[must_use]
    pub fn new(is_stopped: fn() -> bool) -> Self {
        Self(RefCell::new(State {
            server: None,
            is_stopped,
            budget: ObjectBudget::new(TIME),
            copies: Copies::default(),
        }))
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
    budget: ObjectBudget,
    copies: Copies,
}

/// Files that were passed as copies. The log shows them at the end.
#[derive(Debug, Default)]
struct Copies {
    files: u64,
    bytes: Bytes,
}

impl Drop for Copies {
    fn drop(&mut self) {
        if self.files > 0 {
            log::info!(
                "symbolization copied {} of {} in all",
                format::counted(self.files, "file", "files"),
                self.bytes
            );
        }
    }
}

/// Reason why an object has no names.
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
        let owner = ObjectOwner::of(&files.object)?;
        let all = [Some(&files.object), files.debug_file.as_ref(), files.supplementary.as_ref()];
        let sizes = all.into_iter().flatten().map(|file| Ok(stored_bytes(&file.metadata()?)));
        let stored = sizes.sum::<io::Result<u64>>()?;
        let time = self.budget.left(owner, stored).ok_or(Lost::Timeout)?;
        let start = Instant::now();
        let memory = MEMORY + stored.saturating_mul(MEMORY_PER_BYTE).min(MAX_MEMORY);
        let found = self.ask(time, memory, files, addresses);
        let part = if found.is_ok() { PART_OF_NAMED } else { 1 };
        self.budget.add(owner, stored, start.elapsed() / part);
        found
    }

    /// Lets a worker find the functions. `memory`: address space of the worker in addition to the mapped files.
    fn ask(
        &mut self,
        time: Duration,
        memory: u64,
        files: &NameFiles,
        addresses: &[VirtOffset],
    ) -> Result<Vec<FunctionsAtAddress>, Lost> {
        let mut left = max_copy();
        let copies = &mut self.copies;
        let mut pass = |file: &File| {
            let passed = PassedFile::of(file, left)?;
            if passed.is_copy {
                left = left.saturating_sub(passed.size);
                copies.files += 1;
                copies.bytes.0 += passed.size;
                add_copy(passed.size);
            }
            io::Result::Ok(passed)
        };
        let object = pass(&files.object)?;
        let debug_file = files.debug_file.as_ref().map(&mut pass).transpose()?;
        let supplementary = files.supplementary.as_ref().map(&mut pass).transpose()?;
        let others = || debug_file.iter().chain(&supplementary);
        let bytes = others().fold(object.size, |bytes, file| bytes.saturating_add(file.size));
        let request = memory_with(&encode(&Request::new(files.reads, debug_file.is_some(), addresses))?)?;
        let (answer, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
        let call = Call {
            deadline_ms: u32::try_from(time.as_millis()).unwrap_or(u32::MAX),
            memory: memory + bytes.min(1 << 40),
        };
        let mut descriptors = vec![request.as_fd(), pipe.as_fd(), object.descriptor.as_fd()];
        descriptors.extend(others().map(|file| file.descriptor.as_fd()));
        self.call(call, &descriptors)?;
        drop(descriptors);
        drop(pipe);
        let latest = Instant::now() + call.deadline() + call.max_delay() + GRACE;
        let end = Limit { at: latest, is_stopped: self.is_stopped };
        let bytes = read_answer(answer, end, max_answer(addresses.len()));
        let outcome =
            bytes.and_then(|bytes| Ok((bytes, outcome(self.server()?, Limit { at: end.at + GRACE, ..end })?)));
        // After an error, start a new server for the next call: the present server hangs or has ended.
        let (bytes, outcome) = outcome.inspect_err(|_| self.server = None)?;
        match outcome {
            Outcome::Answered => Ok(decode_answer(&bytes, addresses.len())?),
            Outcome::Timeout => Err(Lost::Timeout),
            Outcome::Memory => Err(Lost::Memory),
            Outcome::Crashed => Err(Lost::Crashed("the process that reads names was killed by a file".into())),
        }
    }

    /// Calls the server. A server that has ended since the last call is started again: this call is not the reason.
    fn call(&mut self, call: Call, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if let Some(server) = &self.server
            && own_server::send(server.socket(), &call, descriptors).is_ok()
        {
            return Ok(());
        }
        self.server = None;
        own_server::send(self.server()?.socket(), &call, descriptors)
    }

    fn server(&mut self) -> io::Result<&OwnServer> {
        match &mut self.server {
            Some(server) => Ok(server),
            none => Ok(none.insert(OwnServer::start(NAME)?)),
        }
    }
}

/// Returns the maximum length of the answer for this number of addresses.
fn max_answer(addresses: usize) -> usize {
    ANSWER_PER_ADDRESS.saturating_mul(addresses).saturating_add(ANSWER).min(MAX_ANSWER)
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

/// Receives the outcome of the last call.
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
    use std::io::Write as _;

    use super::*;

    fn within(time: Duration) -> Limit {
        Limit { at: Instant::now() + time, is_stopped: || false }
    }

    #[test]
    fn answer_has_a_maximum_length() {
        for (length, is_read) in [(0, true), (99, true), (100, true), (101, false), (5000, false)] {
            let (answer, pipe) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            File::from(pipe).write_all(&vec![7; length]).unwrap();
            // Children of other tests can have the pipe open for a while.
            match read_answer(answer, within(Duration::from_secs(60)), 100) {
                Ok(bytes) => assert!(is_read && bytes == vec![7; length], "{length}"),
                Err(Lost::Memory) => assert!(!is_read, "{length}"),
                Err(_) => panic!("{length}"),
            }
        }
    }

    #[test]
    fn answer_without_an_end_is_given_up() {
        let (answer, pipe) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        rustix::io::write(&pipe, &[7; 100]).unwrap();
        assert!(matches!(read_answer(answer, within(Duration::ZERO), 100), Err(Lost::Timeout)));
    }

    #[test]
    fn length_of_an_answer_grows_with_the_addresses() {
        const UNIT: usize = 64 << 10;
        let most = [0, 1, 1007, 1008, 1009, usize::MAX].map(max_answer);
        assert_eq!(most, [16 * UNIT, 17 * UNIT, 1023 * UNIT, 1024 * UNIT, 1024 * UNIT, 1024 * UNIT]);
    }
}
