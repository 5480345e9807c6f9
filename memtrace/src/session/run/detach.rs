//! Removal of the probes at the end of a run.

use std::sync::Arc;

use memtrace_host::kernel::{self, Probes};
use tokio::sync::Notify;

use super::wait::{Signals, wait_for_detach};
use crate::session::observer::Observer;

/// Removal in progress.
pub(in crate::session) struct Detach {
    detaching: kernel::Detach,
    /// Notified when probes are removed.
    removed: Arc<Notify>,
}

impl Detach {
    /// Starts to remove the probes in the background.
    pub(in crate::session) fn start(probes: Probes) -> Self {
        let removed = Arc::new(Notify::new());
        let notify = removed.clone();
        Self { detaching: probes.detach(move || notify.notify_one()), removed }
    }

    /// Waits until all are removed, or until a signal.
    pub(in crate::session) async fn wait(self, signals: &mut Signals, observer: &mut dyn Observer) {
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
