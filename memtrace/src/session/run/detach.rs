//! The end of a run: its probes are removed.

use std::sync::Arc;

use tokio::sync::Notify;

use super::wait::{self, Signals};
use crate::kernel::{Detaching, Probes};
use crate::session::observer::Observer;

/// Probes on their way out.
pub(super) struct Leaving {
    detaching: Detaching,
    /// Some are gone.
    gone: Arc<Notify>,
}

impl Leaving {
    /// Begins to remove them, in the background.
    pub(super) fn begin(probes: Probes) -> Self {
        let gone = Arc::new(Notify::new());
        let tell = gone.clone();
        Self { detaching: probes.detach(move || tell.notify_one()), gone }
    }

    /// Waits until they are gone, or somebody does not want to wait.
    pub(super) async fn wait(self, signals: &mut Signals, observer: &mut dyn Observer) {
        let tell = |detaching: &Detaching| observer.detaching(detaching.removed(), detaching.total());
        if wait::removed(signals, &self.detaching, &self.gone, tell).await {
            return;
        }
        let (removed, total) = (self.detaching.removed(), self.detaching.total());
        observer
            .note(&format!("not waiting: {removed} of {total} probes are removed, the kernel goes on with the others"));
        if let Err(error) = self.detaching.bequeath() {
            log::warn!("it had to be waited for the probes: {error}");
        }
    }
}
