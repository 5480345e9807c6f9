//! A BPF ring buffer as the source of a shard.

use std::time::Duration;

use memtrace_history::pipeline::{Drained, Source};
use memtrace_host::kernel::RingReader;
use memtrace_model::Event;

pub(super) struct RingSource(pub(super) RingReader);

impl Source for RingSource {
    fn begin(&mut self) {
        RingReader::raise_priority();
    }

    fn drain<F: FnMut(Event)>(&mut self, limit: usize, sink: F) -> Drained {
        let drained = self.0.drain(limit as u64, sink);
        let records = usize::try_from(drained.events + drained.bad).unwrap_or(usize::MAX);
        Drained { records, bad: drained.bad }
    }

    fn wait(&mut self, timeout: Duration) {
        self.0.wait(timeout);
    }
}
