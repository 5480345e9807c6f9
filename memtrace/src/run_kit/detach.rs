//! Removal of the probes at the end of a run.

use std::sync::Arc;
use std::time::Duration;

use memtrace_host::kernel::{self, LockHolder, Probes};
use tokio::sync::Notify;
use tokio::time::{Instant, interval_at};

use super::event_loop::Signals;
use super::observer::Observer;

/// Interval at which the progress of a detach is shown.
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// Delay before the progress of a detach is shown. Most detaches take less.
const SHOW_DETACH_AFTER: Duration = Duration::from_millis(300);

/// Maximum wait for a process that holds the lock of its memory map.
const LONGEST_LOCK: Duration = Duration::from_secs(10);

/// Time for which memtrace waits for all locks together.
const LONGEST_LOCKS: Duration = Duration::from_secs(30);

/// Removal of the probes in the background.
pub(crate) struct Detach {
    detaching: kernel::Detach,
    /// Notified at each step of the removal.
    removed: Arc<Notify>,
}

impl Detach {
    /// Starts to remove the probes in the background.
    pub(crate) fn start(probes: Probes) -> Self {
        let removed = Arc::new(Notify::new());
        let notify = removed.clone();
        Self { detaching: probes.detach(move || notify.notify_one()), removed }
    }

    /// Waits until all probes are removed. If a signal arrives first, or a process holds the lock of its memory map for too
    /// long, another process takes over the removal.
    pub(crate) async fn wait(self, signals: &mut Signals, observer: &mut dyn Observer) {
        if wait_for_detach(signals, &self.detaching, &self.removed, observer).await {
            return;
        }
        let (removed, total) = (self.detaching.removed(), self.detaching.total());
        observer.note(&match self.detaching.lock_holder() {
            None => format!("{removed} of {total} probes are removed, the kernel removes the others in the background"),
            Some(holder) => format!(
                "{removed} of {total} probes are removed, a process of memtrace removes the others when {holder} has \
                 released the lock of its memory map"
            ),
        });
        if let Err(error) = self.detaching.hand_over() {
            log::warn!("cannot leave the removal of the probes to another process, so it was waited for: {error}");
        }
    }
}

/// Waits until the probes are removed, a signal arrives, or a lock is held for [`LONGEST_LOCK`]. Returns true if the probes
/// are removed. `removed` is notified at each step of the removal. The progress is shown every [`SHOW_EVERY`] from
/// [`SHOW_DETACH_AFTER`] on.
async fn wait_for_detach(
    signals: &mut Signals,
    detaching: &kernel::Detach,
    removed: &Notify,
    observer: &mut dyn Observer,
) -> bool {
    let mut ticks = interval_at(Instant::now() + SHOW_DETACH_AFTER, SHOW_EVERY);
    let mut locks = LockWait::default();
    while !detaching.is_complete() {
        match detaching.lock_holder() {
            Some(holder) => {
                if locks.since.is_none() {
                    observer.note(&lock_note(&holder));
                }
                if locks.is_too_long(Instant::now()) {
                    return false;
                }
            }
            None => locks.end(Instant::now()),
        }
        tokio::select! {
            () = signals.any() => return false,
            () = removed.notified() => {}
            _ = ticks.tick() => observer.detaching(detaching.removed(), detaching.total()),
        }
    }
    true
}

/// Time for which memtrace has waited for locks of memory maps.
#[derive(Debug, Default)]
struct LockWait {
    /// Begin of the wait for a lock; `None` if no lock is held.
    since: Option<Instant>,
    /// Duration of the earlier waits.
    before: Duration,
}

impl LockWait {
    /// Records that a lock is held at `now`. Returns true if it is held for [`LONGEST_LOCK`], or if memtrace has waited for
    /// [`LONGEST_LOCKS`].
    fn is_too_long(&mut self, now: Instant) -> bool {
        let locked = now - *self.since.get_or_insert(now);
        locked >= LONGEST_LOCK || self.before + locked >= LONGEST_LOCKS
    }

    /// Records that no lock is held at `now`. Another lock can be held later.
    fn end(&mut self, now: Instant) {
        self.before += self.since.take().map_or(Duration::ZERO, |since| now - since);
    }
}

fn lock_note(holder: &LockHolder) -> String {
    format!(
        "the removal of the probes waits, because {holder} holds the lock of its memory map, and no process of this machine \
         could fork while probes are removed"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_a_lock_begins_again_after_its_release() {
        let (mut locks, start) = (LockWait::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        // Each lock is held for nine seconds.
        for begin in [0, 20, 40] {
            assert!(!locks.is_too_long(at(begin)) && !locks.is_too_long(at(begin + 9)), "{begin}");
            locks.end(at(begin + 9));
            locks.end(at(begin + 15));
        }
        assert!(!locks.is_too_long(at(60)) && !locks.is_too_long(at(62)), "29 seconds in sum");
        assert!(locks.is_too_long(at(63)), "30 seconds in sum");
        let mut single = LockWait::default();
        assert!(!single.is_too_long(at(0)) && single.is_too_long(at(10)));
    }
}
