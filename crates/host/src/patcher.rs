//! Change of code in a running process, with its undo.
//!
//! A process of its own, the *patcher*, stops threads of other processes and writes to their memory. It gets finished bytes from
//! memtrace, and reads no symbols. A patch has two steps, so that all threads are stopped only for a moment. [`Patcher::map`]
//! stops the main thread, and maps a stub (`memtrace_object::overlay`). [`Patcher::enable`] stops all threads, and writes a jump to
//! the stub over one instruction of each allocator function. [`Patcher::disable`] writes the instructions back. The stub stays
//! mapped, because a thread can be in it. The next patch of the process uses it again.
//!
//! - If the patcher is killed, the process runs on: the kernel continues the threads that the patcher has stopped, and the main
//!   thread restores its registers from a signal frame (`signal_frame`).
//! - A process can write anything into its memory, also into the stub. What is read there is checked before it is used.
//! - The process is not changed at all if a step is refused. Only a stub without jumps, or a descriptor of its file, can be left.

mod protocol;
mod refusal;
mod server;
#[cfg(not(target_arch = "x86_64"))]
mod unsupported;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use memtrace_model::Pid;
use memtrace_object::overlay::layout::{CODE_SIZE, MAGIC, SiteRecord, StubHeader};
use memtrace_object::overlay::stub::{self, StubError, StubImage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use self::protocol::{Answer, MAX_MESSAGE, Request, is_of_other_version};
#[cfg(not(target_arch = "x86_64"))]
use self::unsupported as architecture;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as architecture;
use crate::own_server::{self, OwnServer};

pub use architecture::has_seccomp_filters;
pub use protocol::{PatchPlan, Stops};
pub use refusal::PatchRefusal;
pub use server::serve;

/// First argument that starts the executable as the patcher.
pub const NAME: &str = "memtrace-patcher";

/// Time limit for an answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Returns the reasons to refuse a process that are visible from outside, without stopping or changing anything.
/// `looks_for_libc`: also examines which C library the process has mapped, as is necessary before its gadgets are known.
#[must_use]
pub fn check(pid: Pid, looks_for_libc: bool) -> Vec<PatchRefusal> {
    architecture::refusals(pid, looks_for_libc, std::process::id())
}

/// Process with a mapped stub.
#[derive(Debug)]
pub struct Attached {
    /// Address of the stub.
    pub base: u64,
    /// File of the stub, for uprobes.
    pub stub: OwnedFd,
    pub header: StubHeader,
    pub sites: Vec<SiteRecord>,
    /// Number of the session.
    pub epoch: u64,
    /// Salt of the thinning hash.
    pub salt: u64,
    /// True if the stub was mapped in an earlier session.
    pub adopted: bool,
    pub stops: Stops,
    plan: PatchPlan,
}

/// The patcher. When this value is dropped, the patcher finishes its present work, and ends.
#[derive(Debug)]
pub struct Patcher {
    /// `None` after a patcher has not answered in time.
    server: Option<OwnServer>,
}

impl Patcher {
    /// Starts the patcher. The executable of this process must call [`serve`] if its first argument is [`NAME`].
    ///
    /// # Errors
    ///
    /// The executable cannot be started.
    pub fn start() -> io::Result<Self> {
        Ok(Self { server: Some(OwnServer::start_uninterrupted(NAME)?) })
    }

    /// Maps the stub in a process, or takes the existing one. The code of the process stays as it is. `build` makes a new stub for
    /// the address that the patcher has chosen.
    ///
    /// # Errors
    ///
    /// The reason why the process is refused. It runs as before.
    pub fn map(
        &mut self,
        plan: &PatchPlan,
        build: impl FnOnce(u64) -> Result<StubImage, StubError>,
    ) -> Result<Attached, PatchRefusal> {
        let (epoch, salt) = (random() | 1, random());
        if plan.existing.is_some()
            && let Some((base, file)) = self.adopt(plan)?
            && let Some((header, sites)) = read_stub(&file, base)?
        {
            let (stub, stops, plan) = (OwnedFd::from(file), Stops::default(), plan.clone());
            return Ok(Attached { base, stub, header, sites, epoch, salt, adopted: true, stops, plan });
        }
        // A stub without a header was never completed, and no jump leads to it.
        let plan = PatchPlan { existing: None, ..plan.clone() };
        let base = match self.ask(&Request::Place(plan.clone()))? {
            (Answer::Placed { base }, _) => base,
            _ => return Err(unexpected()),
        };
        let StubImage { bytes, header, sites } = build(base).map_err(|error| stub_refusal(&error))?;
        let control = stub::initial_control(plan.interval_base, plan.shift, epoch, salt).to_vec();
        match self.ask(&Request::Write { plan: plan.clone(), base, image: bytes, control })? {
            (Answer::Mapped(stops), Some(stub)) => {
                Ok(Attached { base, stub, header, sites, epoch, salt, adopted: false, stops, plan })
            }
            _ => Err(unexpected()),
        }
    }

    /// Writes the jumps to the stub. Call this after the uprobes of the stub are attached.
    ///
    /// # Errors
    ///
    /// The reason why the process is refused. Its functions have their original code.
    pub fn enable(&mut self, attached: &Attached) -> Result<Stops, PatchRefusal> {
        let Attached { base, header, sites, epoch, salt, adopted, plan, .. } = attached;
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(sites.iter().flat_map(SiteRecord::to_bytes));
        let control = || stub::initial_control(plan.interval_base, plan.shift, *epoch, *salt).to_vec();
        let control = adopted.then(control);
        self.stops(&Request::Enable { plan: plan.clone(), base: *base, header: bytes, control })
    }

    /// Writes the original code of the functions of the stub at `base` back. The stub stays mapped. Remove its uprobes after this.
    /// The process is known by its pid and its start, in clock ticks since the boot. A later process with the same pid has another
    /// start, and is not changed.
    ///
    /// # Errors
    ///
    /// The reason why the process is refused. [`PatchRefusal::Foreign`] if the code of a function is neither the original code
    /// nor the jump: this function is left alone, and the code of the other functions is restored.
    pub fn disable(&mut self, (pid, start_time): (Pid, u64), base: u64) -> Result<Stops, PatchRefusal> {
        self.stops(&Request::Disable { pid: pid.0, start_time, base })
    }

    /// Returns the address and the file of the existing stub of a process.
    fn adopt(&mut self, plan: &PatchPlan) -> Result<Option<(u64, File)>, PatchRefusal> {
        let Some(base) = plan.existing else { return Ok(None) };
        match self.ask(&Request::Place(plan.clone()))? {
            (Answer::Adopted, Some(file)) => Ok(Some((base, File::from(file)))),
            _ => Err(unexpected()),
        }
    }

    fn stops(&mut self, request: &Request) -> Result<Stops, PatchRefusal> {
        match self.ask(request)? {
            (Answer::Done(stops), _) => Ok(stops),
            _ => Err(unexpected()),
        }
    }

    /// Sends a request, and returns the answer with its descriptor. A patcher that has not answered in time is not asked again: it
    /// finishes its work, and ends.
    fn ask(&mut self, request: &Request) -> Result<(Answer, Option<OwnedFd>), PatchRefusal> {
        let failed = |error: io::Error| PatchRefusal::Patcher(error.to_string());
        let known = self.server.take().filter(|server| own_server::send(server.socket(), request, &[]).is_ok());
        let server = match known {
            Some(server) => server,
            // There is no patcher, or it has ended, as it does if only its end releases a thread.
            None => {
                let server = OwnServer::start_uninterrupted(NAME).map_err(failed)?;
                own_server::send(server.socket(), request, &[]).map_err(failed)?;
                server
            }
        };
        wait(server.socket(), Instant::now() + ANSWER).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => PatchRefusal::Timeout,
            _ => failed(error),
        })?;
        let received = own_server::receive::<Answer>(server.socket(), MAX_MESSAGE).map_err(failed)?;
        let (answer, descriptors) = received.ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        self.server = Some(server);
        match answer {
            Answer::Refused(refusal) => Err(refusal),
            answer => Ok((answer, descriptors.into_iter().next())),
        }
    }
}

/// Waits until a socket can be read.
fn wait(socket: BorrowedFd<'_>, end: Instant) -> io::Result<()> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads an existing stub from its file: breakpoints change only the memory of the process. Returns `None` for a file without a
/// header.
fn read_stub(file: &File, base: u64) -> Result<Option<(StubHeader, Vec<SiteRecord>)>, PatchRefusal> {
    let mut bytes = vec![0; CODE_SIZE as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|_| PatchRefusal::OtherVersion)?;
    match stub::read(&bytes) {
        Some((header, sites)) if header.base == base => Ok(Some((header, sites))),
        Some(_) => Err(PatchRefusal::OtherVersion),
        // A stub of this version with another checksum is damaged.
        None if is_of_other_version(&bytes) || bytes.starts_with(&MAGIC) => Err(PatchRefusal::OtherVersion),
        None => Ok(None),
    }
}

fn stub_refusal(error: &StubError) -> PatchRefusal {
    match error {
        StubError::OutOfReach(_) => PatchRefusal::NoRoom,
        StubError::TooManySites | StubError::CodeTooLong | StubError::Operand(_) => {
            PatchRefusal::Allocator(error.to_string())
        }
    }
}

fn unexpected() -> PatchRefusal {
    PatchRefusal::Patcher(String::from("an unexpected answer"))
}

/// Returns a number that a process cannot guess: the keys of the hash are random.
fn random() -> u64 {
    RandomState::new().hash_one(NAME)
}
