//! What a run tells while it runs. Whoever listens decides what of it is shown, and where.

use std::time::Duration;

use crate::model::Bytes;

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The time since every probe was in place.
    pub elapsed: Duration,
    /// Bytes allocated since then and not yet freed, of all targets together.
    pub live: Bytes,
    /// Events seen since then.
    pub events: u64,
    /// Events in each second since the progress before this one.
    pub events_per_second: f64,
    /// Everything lost since then, for whatever reason.
    pub lost: u64,
}

/// Listens to a run.
pub trait Observer {
    /// Every probe is in place. `what` goes on from the word "attached": `to pid 4711 (redis-server), 12 probes`.
    fn attached(&mut self, what: &str);

    /// The run goes on; called a few times a second at most.
    fn progress(&mut self, progress: &Progress);

    /// The report is written, and so many of all probes are gone; called a few times a second at most, and not at all where
    /// it takes no longer than a moment. Another signal ends it.
    fn detaching(&mut self, removed: usize, total: usize);

    /// Something worth knowing happened, in one line: `the target has ended`, `wrote memtrace.svg`.
    fn note(&mut self, text: &str);

    /// The run is over, and this is its summary, of several lines.
    fn summary(&mut self, text: &str);
}
