//! The event loop of a run: waits for its end, and calls back for work that is due.

use std::future;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::marks::{MarkSource, MarkSources};
use crate::run_kit::event_loop::{Signals, process_exit, register, until};

/// Reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Signal,
    Duration,
    TargetsExited,
    /// Tracing costs the targets more than the limit.
    OverheadLimit,
}

#[derive(Debug)]
pub(super) enum Due {
    /// New mappings, unwind tables or records of frequent parts must be processed.
    Mappings,
    /// All periodic work is due.
    Tick,
    /// Marks must be set.
    Mark(MarkSource),
}

/// Interval of [`Due::Tick`].
const TICK: Duration = Duration::from_millis(100);

/// Interval of [`Due::Mappings`]. A new allocator is probed after this time at most. A wakeup for each mapping would
/// cost the mapping process several times as much as the perf record itself.
const MAPPINGS: Duration = Duration::from_millis(4);

/// Descriptors and notifications that wake up a run.
pub(super) struct WakeupSources {
    pub(super) pidfds: Vec<OwnedFd>,
    /// Ring of requests for unwind tables, readable after a request. It must stay open as long as
    /// the wakeups.
    pub(super) table_requests: RawFd,
    /// Notified when an unwind table is built.
    pub(super) table_built: Arc<Notify>,
    /// Notified when an image has stopped at its exec.
    pub(super) exec_stopped: Arc<Notify>,
    /// True if new mappings are processed each [`MAPPINGS`] instead of each [`TICK`].
    pub(super) polls_mappings: bool,
}

/// Wakeups of a run, registered with the runtime.
pub(super) struct Wakeups {
    pidfds: Vec<AsyncFd<OwnedFd>>,
    /// Ring of requests for unwind tables; `None` after an error.
    table_requests: Option<AsyncFd<RawFd>>,
    table_built: Arc<Notify>,
    exec_stopped: Arc<Notify>,
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
            exec_stopped: sources.exec_stopped,
            mappings,
        })
    }

    /// Waits until mappings or unwind tables must be processed.
    async fn mappings_due(&mut self) {
        let requests = async {
            match &self.table_requests {
                // Clear the readiness before the ring is read, so that a request during the read wakes the loop again.
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
            () = self.exec_stopped.notified() => Ok(()),
            _ = mappings => Ok(()),
        };
        if let Err(error) = requests {
            log::warn!("requests for unwind tables are answered late: {error}");
            self.table_requests = None;
        }
    }
}

/// Waits until a signal arrives, `deadline` has passed, all processes have exited or `handle` returns a reason to stop.
/// Calls `handle` for work that is due.
pub(super) async fn wait(
    signals: &mut Signals,
    deadline: Option<Instant>,
    wakeups: &mut Wakeups,
    marks: &mut MarkSources,
    mut handle: impl FnMut(Due) -> Option<Stop>,
) -> Stop {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pidfds = std::mem::take(&mut wakeups.pidfds);
    let stop = loop {
        let due = tokio::select! {
            () = signals.any() => break Stop::Signal,
            () = until(deadline) => break Stop::Duration,
            was_last = process_exit(&mut pidfds) => match was_last {
                true => break Stop::TargetsExited,
                false => continue,
            },
            () = wakeups.mappings_due() => Due::Mappings,
            _ = ticks.tick() => Due::Tick,
            source = marks.next() => Due::Mark(source),
        };
        if let Some(stop) = handle(due) {
            break stop;
        }
    };
    wakeups.pidfds = pidfds;
    stop
}
