//! Removal of the probes at the end of a run.

use std::sync::Arc;
use std::time::Duration;

use memtrace_host::kernel::{self, Probes};
use tokio::sync::Notify;
use tokio::time::{Instant, interval_at};

use super::event_loop::Signals;
use super::observer::Observer;

/// Interval at which the progress of a detach is shown.
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// Delay before the progress of a detach is shown. Most detaches take less.
const SHOW_DETACH_AFTER: Duration = Duration::from_millis(300);

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

    /// Waits until all probes are removed. If a signal arrives first, another process takes over
    /// the removal.
    pub(crate) async fn wait(self, signals: &mut Signals, observer: &mut dyn Observer) {
        let show = |detaching: &kernel::Detach| observer.detaching(detaching.removed(), detaching.total());
        if wait_for_detach(signals, &self.detaching, &self.removed, show).await {
            return;
        }
        let (removed, total) = (self.detaching.removed(), self.detaching.total());
        observer
            .note(&format!("{removed} of {total} probes are removed, the kernel removes the others in the background"));
        if let Err(error) = self.detaching.hand_over() {
            log::warn!("cannot leave the removal of the probes to another process, so it was waited for: {error}");
        }
    }
}

/// Waits until the probes are removed or a signal arrives. Returns true if the probes are removed. `removed` is
/// notified at each step of the removal. `show` is called every [`SHOW_EVERY`] from
/// [`SHOW_DETACH_AFTER`] on.
async fn wait_for_detach(
    signals: &mut Signals,
    detaching: &kernel::Detach,
    removed: &Notify,
    mut show: impl FnMut(&kernel::Detach),
) -> bool {
    let mut ticks = interval_at(Instant::now() + SHOW_DETACH_AFTER, SHOW_EVERY);
    while !detaching.is_complete() {
        tokio::select! {
            () = signals.any() => return false,
            () = removed.notified() => {}
            _ = ticks.tick() => show(detaching),
        }
    }
    true
}
