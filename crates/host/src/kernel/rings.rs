//! Ring buffers of events, and their readers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aya::maps::MapData;
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF;
use memtrace_model::{Bytes, Event};

use super::decode::decode;
use super::error::KernelError;
use super::mapped_ring::MappedRing;

/// False after a thread could not raise its priority.
static HAS_PRIORITY: AtomicBool = AtomicBool::new(true);

/// Reader of one ring.
pub struct RingReader(MappedRing);

/// Numbers of records that were read from a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Number of decoded records.
    pub events: u64,
    /// Number of records that could not be decoded.
    pub bad: u64,
}

impl RingReader {
    /// Creates a ring of `size`, which must be a power of two and a multiple of the page size.
    pub(super) fn create(size: Bytes) -> Result<Self, KernelError> {
        const ACTION: &str = "create a ring buffer";
        let entries = u32::try_from(size.0).map_err(|_| KernelError::Failed {
            action: ACTION.to_owned(),
            reason: format!("{size} exceeds the maximum size of a ring"),
        })?;
        let definition = aya_obj::Map::new_from_params(BPF_MAP_TYPE_RINGBUF as u32, 0, 0, entries, 0);
        let map = MapData::create(definition, "memtrace_ring", None)
            .map_err(|error| KernelError::from_error(ACTION, &error))?;
        MappedRing::new(map, ACTION).map(Self)
    }

    pub(super) const fn map(&self) -> &MapData {
        self.0.map_data()
    }

    /// Raises the priority of the calling thread, if permitted ([`Self::has_priority`]). At the default priority, targets can
    /// keep all CPUs busy until a ring overflows.
    pub fn raise_priority() {
        const NICENESS: libc::c_int = -10;
        const THIS_THREAD: libc::id_t = 0;
        // SAFETY: the call has no conditions.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, THIS_THREAD, NICENESS) } != 0 {
            log::debug!("cannot raise the priority of a ring reader: {}", std::io::Error::last_os_error());
            HAS_PRIORITY.store(false, Ordering::Relaxed);
        }
    }

    /// Returns false if a thread could not raise its priority.
    #[must_use]
    pub fn has_priority() -> bool {
        HAS_PRIORITY.load(Ordering::Relaxed)
    }

    /// Returns true if the ring has records, including one that is not complete yet.
    pub fn has_unread(&mut self) -> bool {
        self.0.has_unread()
    }

    /// Decodes up to `limit` records, and passes their events to `sink` in order.
    pub fn drain(&mut self, limit: u64, mut sink: impl FnMut(Event)) -> Drained {
        let mut drained = Drained::default();
        while drained.events + drained.bad < limit {
            let Some(record) = self.0.next_record() else { break };
            match decode(&record) {
                Ok(event) => {
                    drained.events += 1;
                    sink(event);
                }
                Err(_) => drained.bad += 1,
            }
        }
        drained
    }

    /// Waits until a BPF program wakes the reader, or `timeout` elapses.
    pub fn wait(&mut self, timeout: Duration) {
        self.0.wait(timeout);
    }
}
