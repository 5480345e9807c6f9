//! Waiting for whatever ends a run, and doing what is due meanwhile.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

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
    /// To take up what the targets have mapped.
    Mappings,
    /// All there is to do a few times a second.
    Everything,
}

/// How often what is due is done.
const TICK: Duration = Duration::from_millis(100);

/// When, from the beginning on, mappings are due besides: a command maps most of what it needs as soon as it runs.
const EARLY: [Duration; 6] = [
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(7),
    Duration::from_millis(15),
    Duration::from_millis(30),
    Duration::from_millis(60),
];

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

/// Waits until a signal comes, `duration` is over or every process behind `pidfds` has ended; does `due` meanwhile.
pub(super) async fn wait(
    signals: &mut Signals,
    duration: Option<Duration>,
    pidfds: Vec<OwnedFd>,
    mut due: impl FnMut(Due),
) -> io::Result<Stop> {
    let begin = Instant::now();
    let deadline = duration.map(|duration| begin + duration);
    let mut early = EARLY.iter().map(|&early| begin + early).peekable();
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
            () = until(early.peek().copied()) => {
                early.next();
                due(Due::Mappings);
            }
            _ = ticks.tick() => due(Due::Everything),
        }
    }
}

fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one open descriptor for as long as it lives, and nothing takes it out of the AsyncFd.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.map_err(Into::into)
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
