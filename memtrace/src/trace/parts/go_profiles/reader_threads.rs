//! Threads that read heap profiles, so that the event loop never waits for a process.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_host::go_profile::GoProfile;
use memtrace_model::{ImageId, Mapping};
use memtrace_object::go::{HeapProfile, ProfileError, ProfileRequest};

use crate::run_kit::clock;
use crate::run_kit::go_profile::{GoExecutables, GoObstacle};

/// Number of threads: maximum number of processes that are read at the same time.
const THREADS: usize = 4;

/// Maximum number of requests without an answer. Each answer can have a whole profile.
const MOST_PENDING: usize = 2 * THREADS;

/// Program to read.
#[derive(Clone)]
pub(super) enum Program {
    /// Program that was not read before: a mapping of its executable.
    New(Mapping),
    Open(Arc<GoProfile>),
}

struct Request {
    id: ImageId,
    program: Program,
    known: Known,
}

/// What is known from the last reading, and what the next one may add.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    /// Number of finished collections; `None` if the profile must be read in any case.
    pub(super) collections: Option<u32>,
    /// Number of buckets whose stacks are known.
    pub(super) buckets: usize,
    /// Maximum number of buckets.
    pub(super) most: usize,
    /// True if samples count that the runtime has not published.
    pub(super) with_unpublished: bool,
}

/// Result of a request.
pub(super) struct Answer {
    pub(super) id: ImageId,
    /// The profile that was found; `None` if there is none.
    pub(super) profile: Option<Arc<GoProfile>>,
    /// The profile; `None` if no collection has finished since the last reading.
    pub(super) result: Result<Option<HeapProfile>, Failure>,
    /// End of the reading on the monotonic clock.
    pub(super) end: Duration,
    pub(super) took: Duration,
}

/// Reason that a profile was not read.
pub(super) enum Failure {
    /// The executable keeps no known profile, or was not read in time.
    Closed(GoObstacle),
    Read(ProfileError),
}

/// Threads that read heap profiles. They end when this is dropped.
pub(super) struct ReaderThreads {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    /// Number of requests without an answer.
    pending: usize,
}

impl ReaderThreads {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub(super) fn start(executables: &Arc<GoExecutables>) -> io::Result<Self> {
        let (requests, incoming) = mpsc::channel::<Request>();
        let (outgoing, answers) = mpsc::channel();
        let incoming = Arc::new(Mutex::new(incoming));
        for number in 0..THREADS {
            let (incoming, outgoing, executables) = (Arc::clone(&incoming), outgoing.clone(), Arc::clone(executables));
            let work = move || {
                loop {
                    // The thread that holds the lock waits for a request, and the others wait for the lock.
                    let next = incoming.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(request) = next else { return };
                    if outgoing.send(read(request, &executables)).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().name(format!("memtrace-go-{number}")).spawn(work)?;
        }
        Ok(Self { requests, answers, pending: 0 })
    }

    /// Returns true if another request can be sent.
    pub(super) const fn have_room(&self) -> bool {
        self.pending < MOST_PENDING
    }

    /// Returns the number of requests without an answer.
    pub(super) const fn pending(&self) -> usize {
        self.pending
    }

    /// Sends a request to read the profile, if more collections have finished than at the last reading.
    pub(super) fn send(&mut self, id: ImageId, program: Program, known: Known) {
        self.pending += usize::from(self.requests.send(Request { id, program, known }).is_ok());
    }

    /// Returns the next answer, if it arrives within `time`.
    pub(super) fn receive(&mut self, time: Duration) -> Option<Answer> {
        let answer = if time.is_zero() { self.answers.try_recv().ok() } else { self.answers.recv_timeout(time).ok() };
        self.pending -= usize::from(answer.is_some());
        answer
    }
}

fn read(Request { id, program, known }: Request, executables: &GoExecutables) -> Answer {
    let start = Instant::now();
    let opened = match program {
        Program::New(mapping) => executables.open(id.pid, &mapping).map(Arc::new),
        Program::Open(profile) => Ok(profile),
    };
    let (profile, result) = match opened {
        Ok(profile) => {
            let Known { collections, buckets, most, with_unpublished } = known;
            let request = ProfileRequest { known: buckets, most, with_unpublished };
            let result = profile.read(collections, request).map_err(Failure::Read);
            (Some(profile), result)
        }
        Err(obstacle) => (None, Err(Failure::Closed(obstacle))),
    };
    Answer { id, profile, result, end: clock::monotonic(), took: start.elapsed() }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{AbsAddr, FileOffset, Object, Pid, UntracedReason};

    use super::*;

    #[test]
    fn every_request_has_an_answer() {
        let mut threads = ReaderThreads::start(&Arc::default()).unwrap();
        let handle = Some("/proc/self/exe".into());
        let object = Arc::new(Object { path: "/bin/server".into(), handle, build_id: None, root: None });
        let (start, end) = (AbsAddr(0x1000), AbsAddr(0x2000));
        let mapping = Mapping { start, end, offset: FileOffset(0), object: Some(object) };
        let pid = Pid(std::process::id());
        let ids: Vec<_> = (0..MOST_PENDING as u32).map(|ordinal| ImageId { pid, ordinal }).collect();
        for &id in &ids {
            assert!(threads.have_room());
            threads.send(id, Program::New(mapping.clone()), Known::default());
        }
        assert!(!threads.have_room());
        let mut answered = Vec::new();
        while threads.pending() > 0 {
            let answer = threads.receive(Duration::from_secs(60)).expect("an answer");
            // This program is not written in Go.
            let Err(Failure::Closed(obstacle)) = answer.result else { panic!("it was read") };
            assert_eq!(obstacle.reason, UntracedReason::GoVersion);
            answered.push(answer.id);
        }
        answered.sort_unstable();
        assert_eq!(answered, ids);
        assert!(threads.receive(Duration::ZERO).is_none());
    }
}
