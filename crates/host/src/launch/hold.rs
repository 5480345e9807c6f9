//! Stops the processes of a command at each exec, until the allocators of the new image have probes.
//!
//! A thread traces the command, and all processes and threads that the command starts, by ptrace(2). Only the thread
//! that traces a process can continue it. When the thread ends, for example because memtrace is killed, the kernel ends
//! all tracing, and continues the processes that the thread has stopped (`exit_ptrace`, kernel/ptrace.c). No process
//! gets a signal: `PTRACE_SEIZE` needs none.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::mem;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitStatus};
use std::ptr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memtrace_model::Pid;

/// Maximum duration of a stop. After it, the image runs without probes.
const LONGEST_STOP: Duration = Duration::from_secs(2);

/// Interval of the thread's checks for other stops while an image is stopped. The thread cannot wait for stops and for
/// [`ExecHold::resume`] at the same time.
const POLL: Duration = Duration::from_micros(200);

/// Interval of the signals that interrupt the thread's wait for stops when the thread has to end.
const WAKE_EVERY: Duration = Duration::from_millis(1);

/// Maximum time to wait until the kernel has removed the ended thread.
const REMOVED_WITHIN: Duration = Duration::from_secs(1);

/// Signal that interrupts a wait for stops. A signal of another process has no effect, as without the handler.
const WAKE: libc::c_int = libc::SIGURG;

/// Events at which a process stops. `PTRACE_O_EXITKILL` is left out, so the processes outlive memtrace. New processes
/// and threads are traced too, with the same options.
const OPTIONS: libc::c_int =
    libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;

/// Event of a new process or thread, and of a process that a signal has stopped (include/uapi/linux/ptrace.h).
const PTRACE_EVENT_STOP: libc::c_int = 128;

/// Image that is stopped at its exec, before its first instruction.
#[derive(Clone, Copy, Debug)]
pub struct StoppedImage {
    pub pid: Pid,
    /// The deadline distinguishes images of one process.
    deadline: Instant,
}

/// Tracing of a command by a thread. Dropping it ends the thread, and continues all processes.
#[derive(Debug)]
pub(super) struct ExecHold {
    shared: Arc<Shared>,
    /// `None` after the end.
    thread: Option<JoinHandle<()>>,
    tid: libc::pid_t,
}

impl ExecHold {
    /// Traces the child `command`, which waits at the barrier. The thread calls `stopped` when an image has stopped.
    ///
    /// # Errors
    ///
    /// Errors of ptrace(2), and of the start of a thread.
    pub(super) fn start(command: Pid, stopped: impl Fn() + Send + 'static) -> io::Result<Self> {
        handle_wake()?;
        let command = libc::pid_t::try_from(command.0).map_err(|_| io::ErrorKind::InvalidInput)?;
        let shared = Arc::new(Shared::default());
        let tracer = Tracer { command, shared: Arc::clone(&shared), notify: stopped };
        let (sender, receiver) = sync_channel(1);
        let run = move || {
            unblock_wake();
            // SAFETY: gettid(2) takes nothing and cannot fail.
            let tid = unsafe { libc::gettid() };
            let seized = ptrace(libc::PTRACE_SEIZE, command, OPTIONS);
            let is_traced = seized.is_ok();
            // The receiver waits for this one message.
            let _ = sender.send(seized.map(|()| tid));
            if is_traced {
                tracer.run();
            }
        };
        let thread = thread::Builder::new().name(String::from("memtrace-hold")).spawn(run)?;
        let tid = receiver.recv().map_err(io::Error::other)??;
        Ok(Self { shared, thread: Some(thread), tid })
    }

    /// Returns the images that have stopped since the last call and are still stopped.
    pub(super) fn take_stopped(&self) -> Vec<StoppedImage> {
        let mut state = self.shared.lock();
        let untaken = mem::take(&mut state.untaken);
        let image = |pid: Pid| Some(StoppedImage { pid, deadline: *state.stopped.get(&pid)? });
        untaken.into_iter().filter_map(image).collect()
    }

    /// Lets an image run. Returns false if the image is not stopped any more: its deadline has passed, or it has ended.
    pub(super) fn resume(&self, image: StoppedImage) -> bool {
        let mut state = self.shared.lock();
        if state.stopped.get(&image.pid) != Some(&image.deadline) {
            return false;
        }
        state.stopped.remove(&image.pid);
        state.resumed.insert(image.pid);
        self.shared.changed.notify_all();
        true
    }

    /// Returns the exit status of the command; `None` while it runs.
    pub(super) fn command_status(&self) -> Option<ExitStatus> {
        self.shared.lock().status
    }

    /// Ends the tracing, which lets all processes run. Returns the exit status of the command if it has ended. Otherwise the
    /// caller can wait for the command.
    pub(super) fn end(mut self) -> Option<ExitStatus> {
        self.end_thread();
        self.command_status()
    }

    /// Waits until all traced processes have ended, and returns the exit status of the command.
    pub(super) fn join(mut self) -> Option<ExitStatus> {
        if let Some(thread) = self.thread.take() {
            self.join_thread(thread);
        }
        self.command_status()
    }

    fn end_thread(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.lock().ends = true;
        self.shared.changed.notify_all();
        // A signal that arrives just before the thread waits does not end the wait, so send it repeatedly.
        while !thread.is_finished() {
            self.signal_thread(WAKE);
            thread::sleep(WAKE_EVERY);
        }
        self.join_thread(thread);
    }

    /// Waits until the kernel has removed the thread. `pthread_join` returns after `exit_mm`, but the kernel ends the tracing
    /// later (`exit_notify`, kernel/exit.c). If another thread waited for the command in between, it would take a stop that
    /// belongs to this thread (`wait_consider_task`).
    fn join_thread(&self, thread: JoinHandle<()>) {
        if thread.join().is_err() {
            log::warn!("the thread that stops processes at exec has failed");
        }
        // The deadline is needed, because another thread of memtrace can get the id of this thread.
        let deadline = Instant::now() + REMOVED_WITHIN;
        while self.signal_thread(0) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
    }

    /// Sends a signal to the thread. The signal 0 is not sent. Returns false if the thread does not exist.
    fn signal_thread(&self, signal: libc::c_int) -> bool {
        let [tid, signal] = [self.tid, signal].map(libc::c_long::from);
        let pid = libc::c_long::from(process::id());
        // SAFETY: tgkill(2) takes three numbers.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) == 0 }
    }
}

impl Drop for ExecHold {
    fn drop(&mut self) {
        self.end_thread();
    }
}

/// State of the thread and of the event loop.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a process is to be continued, or the thread is to end.
    changed: Condvar,
}

/// The sets have one entry for each traced process at most.
#[derive(Debug, Default)]
struct State {
    /// Processes that are stopped at an exec, with their deadlines.
    stopped: HashMap<Pid, Instant>,
    /// Processes that have stopped since the last [`ExecHold::take_stopped`].
    untaken: BTreeSet<Pid>,
    /// Processes that the thread has to continue.
    resumed: BTreeSet<Pid>,
    /// Exit status of the command.
    status: Option<ExitStatus>,
    /// True if the thread has to end.
    ends: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a request, for [`POLL`] at most.
    fn wait_for_request(&self) {
        let is_idle = |state: &mut State| state.resumed.is_empty() && !state.ends;
        drop(self.changed.wait_timeout_while(self.lock(), POLL, is_idle));
    }
}

/// Next step of the thread.
enum Next {
    /// Wait for a stop.
    Wait,
    /// Look for stops without a wait: some images are stopped, and must be continued in time.
    Poll,
    End,
}

/// The thread that traces.
struct Tracer<N> {
    command: libc::pid_t,
    shared: Arc<Shared>,
    notify: N,
}

impl<N: Fn()> Tracer<N> {
    /// Handles stops until no traced process is left, or until [`State::ends`].
    fn run(&self) {
        loop {
            let flags = match self.continue_due() {
                Next::Wait => 0,
                Next::Poll => libc::WNOHANG,
                Next::End => return self.handle_last(),
            };
            match wait(-1, flags) {
                Ok(Some((tid, status))) => self.handle(tid, status),
                Ok(None) => self.shared.wait_for_request(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No process is left (ECHILD).
                Err(_) => return,
            }
        }
    }

    /// Continues the processes that were resumed, and the processes whose deadline has passed.
    fn continue_due(&self) -> Next {
        let now = Instant::now();
        let mut state = self.shared.lock();
        let mut due = mem::take(&mut state.resumed);
        state.stopped.retain(|&pid, deadline| {
            let waits = *deadline > now;
            if !waits {
                log::debug!("process {pid} runs before its allocators have probes: it was stopped for too long");
                due.insert(pid);
            }
            waits
        });
        let next = match (state.ends, state.stopped.is_empty()) {
            (true, _) => Next::End,
            (false, true) => Next::Wait,
            (false, false) => Next::Poll,
        };
        drop(state);
        // Only this thread waits for the processes, so their pids cannot be reused yet.
        for tid in due.into_iter().filter_map(|pid| libc::pid_t::try_from(pid.0).ok()) {
            restart(libc::PTRACE_CONT, tid, 0);
        }
        next
    }

    /// Handles the exit of the command, if it has exited, so that its status is known after the end.
    fn handle_last(&self) {
        if let Ok(Some((tid, status))) = wait(self.command, libc::WNOHANG) {
            self.handle(tid, status);
        }
    }

    fn handle(&self, tid: libc::pid_t, status: libc::c_int) {
        if !libc::WIFSTOPPED(status) {
            return self.remove(tid, status);
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_EXEC => self.stop(tid),
            // A signal has stopped the process. It stays stopped until SIGCONT, which is another stop.
            PTRACE_EVENT_STOP if stops_processes(signal) => restart(libc::PTRACE_LISTEN, tid, 0),
            // A signal is to be delivered.
            0 => restart(libc::PTRACE_CONT, tid, signal),
            // A process or thread has started another one, or is a new one.
            _ => restart(libc::PTRACE_CONT, tid, 0),
        }
    }

    /// Leaves a process stopped at its exec. `tid` is the pid of the process, whichever thread has called exec (ptrace(2),
    /// "execve(2) under ptrace").
    fn stop(&self, tid: libc::pid_t) {
        let Ok(pid) = u32::try_from(tid).map(Pid) else { return };
        let mut state = self.shared.lock();
        state.stopped.insert(pid, Instant::now() + LONGEST_STOP);
        state.untaken.insert(pid);
        drop(state);
        (self.notify)();
    }

    /// Removes a process or thread that has ended.
    fn remove(&self, tid: libc::pid_t, status: libc::c_int) {
        let mut state = self.shared.lock();
        if tid == self.command {
            // Keep the first status: a later process can have the same pid.
            state.status.get_or_insert(ExitStatus::from_raw(status));
        }
        if let Ok(pid) = u32::try_from(tid).map(Pid) {
            state.stopped.remove(&pid);
            state.untaken.remove(&pid);
            state.resumed.remove(&pid);
        }
    }
}

/// Returns true for the signals that stop a process (signal(7)).
const fn stops_processes(signal: libc::c_int) -> bool {
    matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}

/// Installs a handler that only ends the wait of the thread with `EINTR`.
fn handle_wake() -> io::Result<()> {
    extern "C" fn do_nothing(_: libc::c_int) {}

    // SAFETY: sigaction is plain data, and all zeros are a value of it: no flags, so no restarted system calls.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = do_nothing as *const () as libc::sighandler_t;
    // SAFETY: `action` is valid, and a handler that does nothing is safe in any thread at any time.
    match unsafe { libc::sigaction(WAKE, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets [`WAKE`] reach this thread. memtrace may have been started with the signal blocked.
fn unblock_wake() {
    // SAFETY: a set of signals is plain data, and all zeros are a value.
    let mut signals: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: the set is valid.
    unsafe { libc::sigemptyset(&raw mut signals) };
    // SAFETY: the set is valid, and so is the signal.
    unsafe { libc::sigaddset(&raw mut signals, WAKE) };
    // SAFETY: the set is valid, and the earlier mask is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, ptr::null_mut()) };
}

/// Waits for a stop or the end of a process or thread that this thread traces: of `tid`, or of any for -1. Returns its
/// id and status.
fn wait(tid: libc::pid_t, flags: libc::c_int) -> io::Result<Option<(libc::pid_t, libc::c_int)>> {
    let mut status = 0;
    // SAFETY: `status` is valid for the length of the call.
    match unsafe { libc::waitpid(tid, &raw mut status, flags | libc::__WALL | libc::__WNOTHREAD) } {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        tid => Ok(Some((tid, status))),
    }
}

/// Continues a stopped process or thread, or lets it wait for SIGCONT. The process may have been killed since the stop.
fn restart(request: impl Into<libc::c_long>, tid: libc::pid_t, signal: libc::c_int) {
    if let Err(error) = ptrace(request, tid, signal)
        && error.raw_os_error() != Some(libc::ESRCH)
    {
        log::debug!("thread {tid} is not continued: {error}");
    }
}

/// Calls ptrace(2) with a request that takes a number.
fn ptrace(request: impl Into<libc::c_long>, tid: libc::pid_t, data: libc::c_int) -> io::Result<()> {
    let request: libc::c_long = request.into();
    let no_address: libc::c_long = 0;
    let [tid, data] = [tid, data].map(libc::c_long::from);
    // SAFETY: the requests of this file take numbers, and write nothing.
    match unsafe { libc::syscall(libc::SYS_ptrace, request, tid, no_address, data) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
