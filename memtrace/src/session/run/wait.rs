//! Waiting for whatever ends a run, and doing what is due meanwhile.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, interval_at, sleep_until};

use crate::kernel::Detaching;

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Somebody said so.
    Signal,
    /// Its time is up.
    Duration,
    /// Everything that was traced has ended.
    TargetsEnded,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// To take up what the targets have mapped, and the unwind tables of it.
    Mappings,
    /// All there is to do a few times a second.
    Everything,
}

/// How often what is due is done.
const TICK: Duration = Duration::from_millis(100);

/// When it is first told how far a removal of probes has come: mostly it takes no longer.
const MOMENT: Duration = Duration::from_millis(300);

/// How often it is looked for new mappings, besides: an allocator that nobody had before is probed so much later at most.
/// Being woken for each mapping would cost whoever maps several times as much as the notice itself.
const MAPPINGS: Duration = Duration::from_millis(4);

/// What tells that mappings are due.
pub(super) struct News {
    /// The kernel half asks for unwind tables; `None` where it does not.
    wanted: Option<AsyncFd<RawFd>>,
    /// A table has been built.
    built: Arc<Notify>,
    /// Somebody may have mapped something; `None` where it is enough to look a few times a second.
    mappings: Option<Interval>,
}

impl News {
    /// `wanted` becomes readable when the kernel half asks for a table, and must stay open as long as this is used;
    /// `built` tells of tables that were built; `hurries` says that what is mapped must be known soon. Must be called inside
    /// the runtime.
    pub(super) fn listen(wanted: Option<RawFd>, built: Arc<Notify>, hurries: bool) -> io::Result<Self> {
        let mappings = hurries.then(|| {
            let mut mappings = interval(MAPPINGS);
            mappings.set_missed_tick_behavior(MissedTickBehavior::Delay);
            mappings
        });
        Ok(Self { wanted: wanted.map(watch).transpose()?, built, mappings })
    }

    async fn any(&mut self) -> io::Result<()> {
        let wanted = async {
            match &self.wanted {
                // Forgotten before it is read, so that what comes meanwhile is heard of.
                Some(wanted) => wanted.readable().await.map(|mut ready| ready.clear_ready()),
                None => std::future::pending().await,
            }
        };
        let mappings = async {
            match &mut self.mappings {
                Some(mappings) => mappings.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = wanted => result,
            () = self.built.notified() => Ok(()),
            _ = mappings => Ok(()),
        }
    }
}

/// Signals that end a run, heard from the moment this is made.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Begins to listen. Must be called inside the runtime.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Waits until a signal comes, `duration` is over or every process behind `pidfds` has ended; does `due` meanwhile, also
/// when there is `news`.
pub(super) async fn wait(
    signals: &mut Signals,
    duration: Option<Duration>,
    pidfds: Vec<OwnedFd>,
    mut news: News,
    mut due: impl FnMut(Due),
) -> io::Result<Stop> {
    let begin = Instant::now();
    let deadline = duration.map(|duration| begin + duration);
    let mut pidfds = pidfds.into_iter().map(watch).collect::<io::Result<Vec<_>>>()?;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = signals.any() => return Ok(Stop::Signal),
            () = until(deadline) => return Ok(Stop::Duration),
            ended = first_ended(&mut pidfds) => {
                pidfds.swap_remove(ended?);
                if pidfds.is_empty() {
                    return Ok(Stop::TargetsEnded);
                }
            }
            result = news.any() => {
                result?;
                due(Due::Mappings);
            }
            _ = ticks.tick() => due(Due::Everything),
        }
    }
}

/// Waits until the probes are gone, or a signal comes; whether they are. `gone` tells that some are; `tell` is called a few
/// times a second, if it takes longer than a moment.
pub(super) async fn removed(
    signals: &mut Signals,
    detaching: &Detaching,
    gone: &Notify,
    mut tell: impl FnMut(&Detaching),
) -> bool {
    let mut ticks = interval_at(Instant::now() + MOMENT, TICK);
    while !detaching.is_over() {
        tokio::select! {
            () = signals.any() => return false,
            () = gone.notified() => {}
            _ = ticks.tick() => tell(detaching),
        }
    }
    true
}

fn watch<T: AsRawFd>(descriptor: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an OwnedFd names one open descriptor for as long as it lives, and nothing takes it out of the AsyncFd; of
    // other descriptors the caller says that they stay open.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.map_err(Into::into)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The place of a process that has ended: its descriptor has become readable (pidfd_open(2)).
async fn first_ended(pidfds: &mut [AsyncFd<OwnedFd>]) -> io::Result<usize> {
    std::future::poll_fn(|context| {
        for (index, pidfd) in pidfds.iter_mut().enumerate() {
            if let std::task::Poll::Ready(ready) = pidfd.poll_read_ready(context) {
                return std::task::Poll::Ready(ready.map(|_| index));
            }
        }
        std::task::Poll::Pending
    })
    .await
}
