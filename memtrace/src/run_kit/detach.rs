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
    let (mut locked_since, mut locked_before): (Option<Instant>, _) = (None, Duration::ZERO);
    while !detaching.is_complete() {
        match detaching.lock_holder() {
            Some(holder) => {
                let since = *locked_since.get_or_insert_with(|| {
                    observer.note(&lock_note(&holder));
                    Instant::now()
                });
                let locked = since.elapsed();
                if locked >= LONGEST_LOCK || locked_before + locked >= LONGEST_LOCKS {
                    return false;
                }
            }
            // Another lock can be held later.
            None => locked_before += locked_since.take().map_or(Duration::ZERO, |since| since.elapsed()),
        }
        tokio::select! {
            () = signals.any() => return false,
            () = removed.notified() => {}
            _ = ticks.tick() => observer.detaching(detaching.removed(), detaching.total()),
        }
    }
    true
}

fn lock_note(holder: &LockHolder) -> String {
    format!(
        "the removal of the probes waits, because {holder} holds the lock of its memory map, and no process of this machine \
         could fork while probes are removed"
    )
}
