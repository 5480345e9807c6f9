//! Top sites of a run in progress.

use std::time::Instant;

use super::Trace;
use crate::session::observer::Observer;
use crate::session::run::periodic_sites::TopSites;

impl Trace {
    /// Shows the top sites if their interval is over.
    pub(super) fn show_sites(&mut self, now: Instant, observer: &mut dyn Observer) {
        let (Some(periodic), Some(recorder)) = (&mut self.periodic_sites, &self.recorder) else { return };
        if let Some(text) = periodic.take_text() {
            observer.summary(&text);
        }
        if periodic.is_due(now) {
            let elapsed = now.saturating_duration_since(self.start);
            periodic.request(TopSites { elapsed, classes: recorder.top_sites(self.top) });
        }
    }
}
