//! The event loop of a command, and its events: signals, exits of processes and deadlines.

use std::future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::Poll;

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
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the signal handlers, once in a process. A second signal forces the end. Must be called inside the
    /// runtime.
    ///
    /// # Errors
    ///
    /// A handler cannot be installed.
    pub(crate) fn listen() -> Result<Self, Error> {
        let listen =
            |kind| signal(kind).map_err(|error| Error::Failed(format!("cannot install signal handlers: {error}")));
        let counted = forced_end::count(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
        counted.map_err(|error| Error::Failed(format!("cannot install signal handlers: {error}")))?;
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
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
