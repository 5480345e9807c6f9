//! The event loop of a run: waits for its end, and calls back for work that is due.

use std::future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use memtrace_host::kernel::Detach;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, interval_at, sleep_until};

use super::marks::{MarkSource, MarkSources};
use crate::session::error::Error;

/// Reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Signal,
    Duration,
    TargetsExited,
}

/// Work that is due.
#[derive(Debug)]
pub(super) enum Due {
    /// Process new mappings and their unwind tables.
    Mappings,
    /// All periodic work.
    Tick,
    /// Set marks.
    Mark(MarkSource),
}

/// Interval of [`Due::Tick`].
const TICK: Duration = Duration::from_millis(100);

/// Delay before the progress of a detach is shown; most take less.
const SHOW_DETACH_AFTER: Duration = Duration::from_millis(300);

/// Interval of [`Due::Mappings`]: a new allocator is probed after this time at most. A wakeup for each mapping would
/// cost the mapping process several times as much as the perf record itself.
const MAPPINGS: Duration = Duration::from_millis(4);

/// Descriptors and notifications of a run.
pub(super) struct WakeupSources {
    pub(super) pidfds: Vec<OwnedFd>,
    /// Readable if BPF programs request unwind tables. It must stay open as long as the wakeups.
    pub(super) table_requests: RawFd,
    /// Notified when an unwind table is built.
    pub(super) table_built: Arc<Notify>,
    /// New mappings are processed each [`MAPPINGS`] instead of each [`TICK`].
    pub(super) polls_mappings: bool,
}

/// Wakeups of a run, registered with the runtime.
pub(super) struct Wakeups {
    pidfds: Vec<AsyncFd<OwnedFd>>,
    /// `None` after an error.
    table_requests: Option<AsyncFd<RawFd>>,
    table_built: Arc<Notify>,
    mappings: Option<Interval>,
}

impl Wakeups {
    /// Registers the sources. Must be called inside the runtime.
    pub(super) fn listen(sources: WakeupSources) -> io::Result<Self> {
        let mappings = sources.polls_mappings.then(|| {
            let mut mappings = interval(MAPPINGS);
            mappings.set_missed_tick_behavior(MissedTickBehavior::Delay);
            mappings
        });
        Ok(Self {
            pidfds: sources.pidfds.into_iter().map(register).collect::<Result<_, _>>()?,
            table_requests: Some(register(sources.table_requests)?),
            table_built: sources.table_built,
            mappings,
        })
    }

    /// Waits until mappings or unwind tables are due.
    async fn mappings_due(&mut self) {
        let requests = async {
            match &self.table_requests {
                // Clear readiness before the ring is read, so that a request during the read wakes again.
                Some(requests) => requests.readable().await.map(|mut ready| ready.clear_ready()),
                None => future::pending().await,
            }
        };
        let mappings = async {
            match &mut self.mappings {
                Some(mappings) => mappings.tick().await,
                None => future::pending().await,
            }
        };
        let requests = tokio::select! {
            result = requests => result,
            () = self.table_built.notified() => Ok(()),
            _ = mappings => Ok(()),
        };
        if let Err(error) = requests {
            log::warn!("requests for unwind tables are answered late: {error}");
            self.table_requests = None;
        }
    }
}

/// Creates the event loop of a command.
///
/// # Errors
///
/// Errors of the kernel.
pub(in crate::session) fn event_loop() -> Result<Runtime, Error> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Failed(format!("cannot start the event loop: {error}")))
}

/// Signals that end a run.
pub(in crate::session) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers. Must be called inside the runtime.
    ///
    /// # Errors
    ///
    /// A handler cannot be installed.
    pub(in crate::session) fn listen() -> Result<Self, Error> {
        let listen =
            |kind| signal(kind).map_err(|error| Error::Failed(format!("cannot install signal handlers: {error}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    pub(in crate::session) async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Waits until a signal arrives, `duration` is over or all processes have exited, and calls `handle` for work that is
/// due.
pub(super) async fn wait(
    signals: &mut Signals,
    duration: Option<Duration>,
    wakeups: &mut Wakeups,
    marks: &mut MarkSources,
    mut handle: impl FnMut(Due),
) -> Stop {
    let deadline = duration.map(|duration| Instant::now() + duration);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pidfds = std::mem::take(&mut wakeups.pidfds);
    let stop = loop {
        tokio::select! {
            () = signals.any() => break Stop::Signal,
            () = until(deadline) => break Stop::Duration,
            was_last = process_exit(&mut pidfds) => {
                if was_last {
                    break Stop::TargetsExited;
                }
            }
            () = wakeups.mappings_due() => handle(Due::Mappings),
            _ = ticks.tick() => handle(Due::Tick),
            source = marks.next() => handle(Due::Mark(source)),
        }
    };
    wakeups.pidfds = pidfds;
    stop
}

/// Waits until the probes are removed or a signal arrives. Returns true if they are removed. `removed` is notified for
/// each step; `show` is called at each tick once the detach takes longer than a moment.
pub(super) async fn wait_for_detach(
    signals: &mut Signals,
    detaching: &Detach,
    removed: &Notify,
    mut show: impl FnMut(&Detach),
) -> bool {
    let mut ticks = interval_at(Instant::now() + SHOW_DETACH_AFTER, TICK);
    while !detaching.is_complete() {
        tokio::select! {
            () = signals.any() => return false,
            () = removed.notified() => {}
            _ = ticks.tick() => show(detaching),
        }
    }
    true
}

/// Registers a descriptor with the runtime. It must stay open.
pub(in crate::session) fn register<T: AsRawFd>(descriptor: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an OwnedFd names one open descriptor for as long as it lives, and nothing takes it out of the AsyncFd;
    // for other descriptors the caller guarantees that they stay open.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.map_err(Into::into)
}

/// Waits until a process exits: its pidfd becomes readable (pidfd_open(2)). Returns true if it was the last one.
pub(in crate::session) async fn process_exit(pidfds: &mut Vec<AsyncFd<OwnedFd>>) -> bool {
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

/// Waits until `deadline`, or forever without one.
pub(in crate::session) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => future::pending().await,
    }
}
