//! The event loop of a command, and its events: signals, exits of processes and deadlines.

use std::future;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::error::Error;
use super::forced_end;

/// Creates the event loop of a command.
///
/// # Errors
///
/// A system call fails.
pub(crate) fn event_loop() -> Result<Runtime, Error> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Failed(format!("cannot start the event loop: {error}")))
}

/// Signals that end a run.
pub(crate) struct Signals(Vec<Signal>);

/// Numbers of the signals that end a run.
const NUMBERS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

impl Signals {
    /// Installs the signal handlers. Call this once in a process, and inside the runtime. A second signal forces the end of
    /// memtrace.
    ///
    /// # Errors
    ///
    /// A handler cannot be installed.
    pub(crate) fn listen() -> Result<Self, Error> {
        let failed = |error: io::Error| Error::Failed(format!("cannot install signal handlers: {error}"));
        // nohup(1) starts a program with SIGHUP ignored, and memtrace must keep ignoring it. Scripts start background programs
        // with SIGINT ignored, but then send SIGINT to end them, so memtrace always handles SIGINT.
        let ignored = is_ignored(libc::SIGHUP);
        let numbers: Vec<_> = NUMBERS.into_iter().filter(|&number| number != libc::SIGHUP || !ignored).collect();
        let listen = |&number| signal(SignalKind::from_raw(number)).map_err(failed);
        let signals = numbers.iter().map(listen).collect::<Result<_, _>>()?;
        forced_end::count(&numbers).map_err(failed)?;
        Ok(Self(signals))
    }

    /// Waits for a signal. The signal that ends this wait counts as the first one: another signal forces the end of the work
    /// that follows.
    pub(crate) async fn any(&mut self) {
        let received = |context: &mut Context<'_>| {
            let is_received = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if is_received { Poll::Ready(()) } else { Poll::Pending }
        };
        future::poll_fn(received).await;
        forced_end::forgive();
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, the call writes the action of the signal, and changes nothing.
    let result = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeros is a valid action, even if the call fails.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Registers a descriptor with the runtime. The descriptor must stay open while it is registered.
pub(crate) fn register<T: AsRawFd>(descriptor: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an OwnedFd names one open descriptor for as long as it lives, and nothing takes it out of the AsyncFd;
    // for other descriptors the caller guarantees that they stay open.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.map_err(Into::into)
}

/// Waits until one of the processes exits: its pidfd becomes readable (pidfd_open(2)). Removes the pidfd. Returns true
/// if no pidfd remains.
pub(crate) async fn process_exit(pidfds: &mut Vec<AsyncFd<OwnedFd>>) -> bool {
    let exited = future::poll_fn(|context| {
        let ready = |pidfd: &AsyncFd<OwnedFd>| match pidfd.poll_read_ready(context) {
            Poll::Ready(Ok(_)) => true,
            Poll::Ready(Err(error)) => {
                log::warn!("cannot wait for a process, which is taken for ended: {error}");
                true
            }
            Poll::Pending => false,
        };
        pidfds.iter().position(ready).map_or(Poll::Pending, Poll::Ready)
    });
    let exited = exited.await;
    pidfds.swap_remove(exited);
    pidfds.is_empty()
}

/// Waits until `deadline`; without a deadline, forever.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => future::pending().await,
    }
}
