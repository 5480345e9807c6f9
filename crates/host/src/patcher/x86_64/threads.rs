//! Stop of the threads of a process by ptrace(2), and their release.
//!
//! `PTRACE_SEIZE` sends no signal, and a process that a signal has stopped stays stopped after the release. When the patcher ends,
//! even by a kill, the kernel releases all threads.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use memtrace_model::Pid;

use super::fault::{self, FaultPoint};
use super::ptrace::{self, Change, Registers, ThreadId};
use super::restart;
use super::seccomp::{self, RESTART};
use super::stops::{StopClock, StopTime};
use super::target::memory_refusal;
use crate::patcher::refusal::{MAX_THREADS, PatchRefusal};
use crate::procfs::{self, TaskStatus};

/// Maximum number of looks at the threads of a process before the first interruption.
const FIRST_SCANS: u32 = 3;
/// Number of attempts to release a thread that has not stopped in time, or was killed.
const LAST_ATTEMPTS: u32 = 20;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of changes of threads in an attempt. A thread can stop and end.
const MAX_CHANGES: usize = 2 * MAX_THREADS;

/// Stop of a process. Its end releases all threads.
#[derive(Debug)]
pub(super) struct Stop<'clock> {
    pid: Pid,
    threads: Vec<TracedThread>,
    /// Indexes of `threads`.
    indexes: HashMap<ThreadId, usize>,
    memory: Option<File>,
    /// Time of the first interruption.
    start: Option<Instant>,
    rewound: u32,
    time: StopTime<'clock>,
}

#[derive(Clone, Copy, Debug)]
struct TracedThread {
    tid: ThreadId,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    /// It runs, and will stop.
    Interrupted,
    Stopped,
    /// It has ended, or is not traced any more.
    Released,
}

/// Result of a look at the threads of a process.
struct Scan {
    /// Number of threads that are traced since this look.
    new: usize,
    /// Number of threads in the list.
    listed: usize,
}

impl<'clock> Stop<'clock> {
    /// Begins a stop, which may take `time`. Stops nothing yet.
    pub(super) fn begin(clock: &'clock StopClock, pid: Pid, time: Duration) -> Result<Self, PatchRefusal> {
        // Without allocations while threads are stopped.
        let (threads, indexes) = (Vec::with_capacity(MAX_THREADS), HashMap::with_capacity(MAX_THREADS));
        let time = clock.begin(time).map_err(|error| PatchRefusal::Patcher(format!("timers: {error}")))?;
        Ok(Self { pid, threads, indexes, memory: None, start: None, rewound: 0, time })
    }

    /// Stops the main thread, and returns it.
    pub(super) fn stop_main(&mut self) -> Result<ThreadId, PatchRefusal> {
        let tid = ThreadId::try_from(self.pid.0).map_err(|_| PatchRefusal::Exiting)?;
        if !self.seize(tid)? {
            return Err(PatchRefusal::Exiting);
        }
        self.interrupt();
        self.wait_for_all()?;
        fault::point(FaultPoint::Stopped);
        self.stopped().find(|stopped| *stopped == tid).ok_or(PatchRefusal::Exiting)
    }

    /// Stops all threads, including those that start in between.
    pub(super) fn stop_all(&mut self) -> Result<(), PatchRefusal> {
        if self.count_threads()? > MAX_THREADS {
            return Err(PatchRefusal::TooManyThreads);
        }
        // Traced threads stop nearly at the same time, so trace them first. A process can start threads for ever.
        for _ in 0..FIRST_SCANS {
            if self.scan()?.new == 0 {
                break;
            }
        }
        fault::point(FaultPoint::AllSeized);
        loop {
            self.interrupt();
            self.wait_for_all()?;
            let Scan { new, listed } = self.scan()?;
            // A thread that ends while the list is read can hide others. The process counts each thread that has not ended, so a
            // complete list has at least this number of threads.
            if new == 0 && listed >= self.count_threads()? {
                break;
            }
            self.check_time()?;
        }
        fault::point(FaultPoint::AllStopped);
        if self.stopped().next().is_none() { Err(PatchRefusal::Exiting) } else { Ok(()) }
    }

    /// Returns the threads that have stopped.
    pub(super) fn stopped(&self) -> impl Iterator<Item = ThreadId> {
        self.threads.iter().filter(|thread| thread.state == State::Stopped).map(|thread| thread.tid)
    }

    /// Returns the memory of the process. While a thread is stopped, the process cannot execute another program without the end
    /// of this thread. So this is the memory of the image to which the registers of the thread belong.
    pub(super) fn memory(&mut self) -> Result<&File, PatchRefusal> {
        let tid = self.stopped().next().ok_or(PatchRefusal::Exiting)?;
        let memory = match self.memory.take() {
            Some(memory) => memory,
            // After the end of the main thread, the kernel shows the memory of the process only in the files of the
            // other threads. With proc_mem.force_override=ptrace, it permits writes only through a traced thread.
            None => {
                let opened = procfs::open_thread_memory(self.pid, tid.cast_unsigned());
                opened.map_err(|error| memory_refusal(&error))?
            }
        };
        let memory: &File = self.memory.insert(memory);
        Ok(memory)
    }

    /// Returns the memory that [`Self::memory`] has opened.
    pub(super) fn opened_memory(&self) -> Option<&File> {
        self.memory.as_ref()
    }

    /// Waits for a change of a thread that runs.
    pub(super) fn wait_for(&mut self, tid: ThreadId) -> Result<Change, PatchRefusal> {
        loop {
            let (changed, change) = self.next_change()?;
            if changed == tid {
                return Ok(change);
            }
            self.record(changed, change);
        }
    }

    /// Records that a thread does not stay at its stop: from now on, it must not be released there.
    pub(super) fn set_running(&mut self, tid: ThreadId) {
        self.set_state(tid, State::Runs);
    }

    /// Waits until a thread that was interrupted and continued stops again.
    pub(super) fn wait_for_stop(&mut self, tid: ThreadId) -> Result<(), PatchRefusal> {
        self.set_state(tid, State::Interrupted);
        self.wait_for_all()
    }

    /// Adds a system call that runs again.
    pub(super) fn add_rewound(&mut self) {
        self.rewound += 1;
    }

    /// Releases all threads. Returns the duration of the stop, and the number of system calls that run again.
    pub(super) fn release(mut self) -> (Duration, u32) {
        self.release_all();
        (self.start.map_or(Duration::ZERO, |start| start.elapsed()), self.rewound)
    }

    /// Returns an error if the time of the stop is over.
    pub(super) fn check_time(&self) -> Result<(), PatchRefusal> {
        if self.time.is_over() { Err(PatchRefusal::NotStopping) } else { Ok(()) }
    }

    /// Returns the number of threads that have not ended, or were not reaped.
    fn count_threads(&self) -> Result<usize, PatchRefusal> {
        let status = procfs::task_status(self.pid, self.pid.0).map_err(|_| PatchRefusal::Exiting)?;
        Ok(status.threads as usize)
    }

    /// Traces the threads that are not traced yet.
    fn scan(&mut self) -> Result<Scan, PatchRefusal> {
        let listed = procfs::tasks(self.pid).map_err(|_| PatchRefusal::Exiting)?;
        let mut new = 0;
        for tid in listed.iter().filter_map(|tid| ThreadId::try_from(*tid).ok()) {
            // The list has no ended threads, so a listed thread with the id of a released thread is a new one.
            let is_traced = self.state(tid).is_some_and(|state| state != State::Released);
            // A worker of io_uring executes no code of the process. A stop would make its requests fail with EINTR.
            if !is_traced && !procfs::is_io_worker(self.pid, tid.cast_unsigned()) && self.seize(tid)? {
                new += 1;
            }
        }
        Ok(Scan { new, listed: listed.len() })
    }

    /// Traces a thread. Returns false if the thread has ended.
    fn seize(&mut self, tid: ThreadId) -> Result<bool, PatchRefusal> {
        if self.threads.len() >= MAX_THREADS {
            return Err(PatchRefusal::TooManyThreads);
        }
        let seized = self.time.seize(tid);
        if seized.is_ok() {
            self.set_state(tid, State::Runs);
        }
        for (changed, change) in self.time.take_changes() {
            self.record(changed, change);
        }
        let refused = match seized {
            Ok(()) => {
                fault::point(FaultPoint::Seized);
                return Ok(true);
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(error) => error,
        };
        // The kernel returns EPERM for a thread that has ended, too (`ptrace_attach`, kernel/ptrace.c).
        match procfs::task_status(self.pid, tid.cast_unsigned()) {
            Ok(status) if status.has_exited() => Ok(false),
            // A thread that executes another program gets the id of the main thread.
            Ok(status) if status.tracer == std::process::id() => Err(PatchRefusal::ExecInProgress),
            Ok(status) if status.tracer != 0 => Err(PatchRefusal::Traced(status.tracer)),
            Ok(_) => Err(PatchRefusal::Permission(format!("ptrace: {refused}"))),
            Err(_) => Ok(false),
        }
    }

    fn state(&self, tid: ThreadId) -> Option<State> {
        Some(self.threads.get(*self.indexes.get(&tid)?)?.state)
    }

    /// Asks the threads to stop. If a thread has ended, a wait reports its end.
    fn interrupt(&mut self) {
        self.start.get_or_insert_with(Instant::now);
        for thread in self.threads.iter_mut().filter(|thread| thread.state == State::Runs) {
            if let Err(error) = ptrace::interrupt(thread.tid) {
                log::debug!("thread {} is not interrupted: {error}", thread.tid);
            }
            thread.state = State::Interrupted;
            fault::point(FaultPoint::Interrupted);
        }
    }

    /// Waits until each interrupted thread has stopped or ended.
    fn wait_for_all(&mut self) -> Result<(), PatchRefusal> {
        while self.threads.iter().any(|thread| thread.state == State::Interrupted) {
            let (tid, change) = match self.next_change() {
                Ok(change) => change,
                // No thread is traced any more.
                Err(PatchRefusal::Exiting) => return Ok(()),
                Err(refusal) => return Err(refusal),
            };
            self.record(tid, change);
        }
        Ok(())
    }

    /// Waits for the next change of a traced thread.
    fn next_change(&mut self) -> Result<(ThreadId, Change), PatchRefusal> {
        loop {
            // The process can produce changes for ever, such as signals.
            self.check_time()?;
            match ptrace::wait(0) {
                Ok(Some((tid, status))) => return Ok((tid, Change::of(status))),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.check_exec()?,
                // ECHILD
                Err(_) => {
                    self.set_all_released();
                    return Err(PatchRefusal::Exiting);
                }
            }
        }
    }

    /// Returns an error if an awaited thread has executed another program: it has got the id of the main thread, and no wait reports
    /// its old id.
    fn check_exec(&self) -> Result<(), PatchRefusal> {
        let mut awaited = self.threads.iter().filter(|thread| thread.state == State::Interrupted);
        if awaited.any(|thread| is_gone(self.pid, thread.tid)) { Err(PatchRefusal::ExecInProgress) } else { Ok(()) }
    }

    /// Records a change. A thread with a signal continues, so that the signal is delivered before the thread stops.
    fn record(&mut self, tid: ThreadId, change: Change) {
        match change {
            Change::Ended => self.set_state(tid, State::Released),
            Change::Stopped => self.set_state(tid, State::Stopped),
            Change::Call | Change::Signal(_) | Change::Other => {
                // An error: the thread was killed.
                if let Err(error) = ptrace::resume(tid, change.passed_signal()) {
                    log::debug!("thread {tid} is not continued: {error}");
                }
            }
        }
    }

    /// Sets the state of a thread. A thread that has executed another program has got the id of the main thread.
    fn set_state(&mut self, tid: ThreadId, state: State) {
        match self.indexes.get(&tid).and_then(|index| self.threads.get_mut(*index)) {
            Some(thread) => thread.state = state,
            None => {
                self.indexes.insert(tid, self.threads.len());
                self.threads.push(TracedThread { tid, state });
            }
        }
    }

    fn set_all_released(&mut self) {
        self.threads.iter_mut().for_each(|thread| thread.state = State::Released);
    }

    fn release_all(&mut self) {
        let stopped: Vec<_> = self.stopped().collect();
        for tid in stopped {
            self.release_thread(tid, 0);
            fault::point(FaultPoint::Released);
        }
        // Only a stopped thread can be released. The others run after an error, or make a system call that was given up.
        self.interrupt();
        for _ in 0..LAST_ATTEMPTS {
            if self.release_late() {
                return;
            }
            thread::sleep(PAUSE);
        }
        log::debug!("threads of process {} do not stop", self.pid);
        self.time.leave_threads();
    }

    /// Releases the threads that have stopped late, and reaps those that have ended. Returns true if no thread is traced.
    fn release_late(&mut self) -> bool {
        for _ in 0..MAX_CHANGES {
            if self.threads.iter().all(|thread| thread.state == State::Released) {
                return true;
            }
            let (tid, change) = match ptrace::wait(libc::WNOHANG) {
                Ok(Some((tid, status))) => (tid, Change::of(status)),
                Ok(None) => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return false,
                // ECHILD
                Err(_) => {
                    self.set_all_released();
                    return true;
                }
            };
            match change {
                Change::Ended => self.set_state(tid, State::Released),
                _ => self.release_thread(tid, change.passed_signal()),
            }
        }
        false
    }

    /// Ends the tracing of a thread that has stopped. `signal`: a signal that is being delivered, or 0.
    fn release_thread(&mut self, tid: ThreadId, signal: libc::c_int) {
        if signal == 0
            && let Some(registers) = self.rewound_registers(tid, None)
            && ptrace::set_registers(tid, &registers).is_ok()
        {
            self.rewound += 1;
        }
        // If this fails, the thread was killed, and a wait reports its end.
        let state = if ptrace::detach(tid, signal).is_ok() { State::Released } else { State::Runs };
        self.set_state(tid, state);
    }

    /// Returns the registers with which an interrupted system call of a thread runs again; `None` if there is no such call, or if
    /// the kernel continues it. `mask`: the signal mask that the thread gets, if the mask changes.
    pub(super) fn rewound_registers(&mut self, tid: ThreadId, mask: Option<u64>) -> Option<Registers> {
        let registers = ptrace::registers(tid).ok()?;
        let is_refused = || restart::is_continued(&registers) && !self.permits_restart(tid, registers.rip);
        if !restart::has_interrupted_call(&registers) && !is_refused() {
            return None;
        }
        let code = self.code_before(tid, registers.rip)?;
        let status = procfs::task_status(self.pid, tid.cast_unsigned()).ok()?;
        let blocked = mask.unwrap_or(status.blocked);
        restart::rewound(&registers, code, &TaskStatus { blocked, ..status })
    }

    /// Returns true if the seccomp filters of a thread permit restart_syscall(2). If not, the kernel could kill the process for the
    /// continuation of a call.
    fn permits_restart(&self, tid: ThreadId, address: u64) -> bool {
        match seccomp::find_refused(tid, &[RESTART], address) {
            Ok(refused) => refused.is_none(),
            // The thread has no filters.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => true,
            // The patcher may not read them.
            Err(_) => {
                let status = procfs::task_status(self.pid, tid.cast_unsigned());
                status.is_ok_and(|status| status.seccomp == seccomp::NONE)
            }
        }
    }

    /// Reads the two bytes before an address.
    fn code_before(&mut self, tid: ThreadId, address: u64) -> Option<[u8; 2]> {
        if self.memory.is_none() {
            self.memory = procfs::open_thread_memory(self.pid, tid.cast_unsigned()).ok();
        }
        let mut code = [0; 2];
        self.memory.as_ref()?.read_exact_at(&mut code, address.checked_sub(2)?).ok()?;
        Some(code)
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.release_all();
    }
}

/// Returns true if a process has no thread with this id, not even one that has ended and was not reaped.
fn is_gone(pid: Pid, tid: ThreadId) -> bool {
    let (pid, tid) = (libc::c_long::from(pid.0), libc::c_long::from(tid));
    // SAFETY: tgkill(2) takes three numbers. The signal 0 is not sent.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    // With another error, the thread exists, but belongs to another user.
    result != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}
