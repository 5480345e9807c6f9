//! The rings: made here, filled by the programs, emptied by one reader each.

use std::os::fd::AsRawFd;
use std::time::Duration;

use aya::maps::{Map, MapData, RingBuf};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF;

use super::decode::decode;
use super::error::KernelError;
use crate::model::{Bytes, Event};

/// One ring, read by whoever owns this.
pub struct RingReader(RingBuf<MapData>);

/// What one look into a ring brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Records that became events.
    pub events: u64,
    /// Records that could not be understood.
    pub bad: u64,
}

impl RingReader {
    /// Makes a ring of `size` bytes, a power of two and a multiple of the page size.
    pub(super) fn create(size: Bytes) -> Result<Self, KernelError> {
        const ACTION: &str = "make a ring buffer";
        let entries = u32::try_from(size.0).map_err(|_| KernelError::Failed {
            action: ACTION.to_owned(),
            reason: format!("{size} is more than a ring can have"),
        })?;
        let definition = aya_obj::Map::new_from_params(BPF_MAP_TYPE_RINGBUF as u32, 0, 0, entries, 0);
        let ring = MapData::create(definition, "memtrace_ring", None)
            .and_then(|data| RingBuf::try_from(Map::RingBuf(data)))
            .map_err(|error| KernelError::from_error(ACTION, &error))?;
        Ok(Self(ring))
    }

    pub(super) fn ring(&self) -> &RingBuf<MapData> {
        &self.0
    }

    /// Has the calling thread go before others: those who fill the rings have the processors, and what is not read in time
    /// is lost. Where that is not permitted it goes on as it is.
    pub fn hurry() {
        const BEFORE_OTHERS: libc::c_int = -10;
        const THIS_THREAD: libc::id_t = 0;
        // SAFETY: the call has no conditions.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, THIS_THREAD, BEFORE_OTHERS) } != 0 {
            log::debug!("rings are read at the usual priority: {}", std::io::Error::last_os_error());
        }
    }

    /// Hands up to `most` records to `sink`, in their order.
    pub fn drain(&mut self, most: u64, mut sink: impl FnMut(Event)) -> Drained {
        let mut drained = Drained::default();
        while drained.events + drained.bad < most {
            let Some(record) = self.0.next() else { break };
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

    /// Waits until the programs wake the reader, for `timeout` at most.
    pub fn wait(&mut self, timeout: Duration) {
        let mut ready = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one initialised pollfd is passed, and its descriptor lives as long as the ring. Whatever ends the wait,
        // the caller looks into the ring next.
        let _ = unsafe { libc::poll(&raw mut ready, 1, timeout) };
    }
}
