//! Variables of the samplers of allocators, read from the memory of the process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_host::procfs::{BoundedMemory, ImageMemory};
use memtrace_host::target_files::open_object;
use memtrace_model::{AbsAddr, Bytes, Mapping, Object, Pid, SampleSource, VirtOffset};
use memtrace_object::allocators::{AllocatorSampler, address_in};

/// Time limit for one reading.
const DEADLINE: Duration = Duration::from_millis(50);

/// Time after which a process has read the options of its allocator.
const SETTLED: Duration = Duration::from_secs(1);

/// Largest binary logarithm of a sampling interval. A forged interval would widen the errors of the whole report.
const MAX_BINARY_LOGARITHM: u64 = 40;

/// Sampler of an allocator in a process.
pub(super) struct WatchedSampler {
    pub(super) source: SampleSource,
    /// Number of readings that have succeeded.
    pub(super) readings: u32,
    /// Time of the first reading that was tried.
    since: Instant,
    object: Option<Arc<Object>>,
    memory: ImageMemory,
    interval: AbsAddr,
    is_binary_logarithm: bool,
    /// Variable of one byte that is 0 if the sampler is not enabled.
    enabled: Option<AbsAddr>,
}

/// State of a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The allocator samples, with this interval.
    On(Bytes),
    /// The allocator does not sample now, for this reason.
    Off(&'static str),
    /// The allocator was started without its sampler, for this reason. If it has read its options, it never samples.
    Disabled(&'static str),
    /// The variables cannot be read.
    Unread,
}

impl WatchedSampler {
    /// Returns the samplers of an object in a process. `mapping`: a mapping of the object.
    pub(super) fn all(pid: Pid, mapping: &Mapping, samplers: &[AllocatorSampler]) -> Vec<Self> {
        let Some(Ok(file)) = mapping.object.as_deref().map(open_object) else { return Vec::new() };
        let Ok(memory) = ImageMemory::open(pid).inspect_err(|error| log::debug!("memory of process {pid}: {error}"))
        else {
            return Vec::new();
        };
        let address = |virt: VirtOffset| address_in(mapping, &file, virt);
        let watched = samplers.iter().filter_map(|sampler| {
            let enabled = match sampler.enabled {
                Some(virt) => Some(address(virt)?),
                None => None,
            };
            Some(Self {
                source: sampler.source,
                readings: 0,
                since: Instant::now(),
                object: mapping.object.clone(),
                memory: memory.clone(),
                interval: address(sampler.interval.virt)?,
                is_binary_logarithm: sampler.interval.is_binary_logarithm,
                enabled,
            })
        });
        watched.collect()
    }

    /// Returns true if the options of the allocator have their final values.
    pub(super) fn is_settled(&self) -> bool {
        self.readings > 1 && self.since.elapsed() >= SETTLED
    }

    /// Returns the object of the sampler.
    pub(super) fn object(&self) -> Option<Arc<Object>> {
        self.object.clone()
    }

    /// Returns true if the sampler belongs to the object of a mapping.
    pub(super) fn is_of(&self, mapping: &Mapping) -> bool {
        self.object == mapping.object
    }

    /// Reads the state of the sampler.
    pub(super) fn read(&mut self) -> State {
        let (interval, enabled) = (self.interval, self.enabled);
        let work = move |memory: &BoundedMemory| {
            let enabled = match enabled {
                Some(address) => read_bytes::<1>(memory, address).map(|[byte]| Some(byte))?,
                None => None,
            };
            Some((read_bytes(memory, interval).map(u64::from_ne_bytes)?, enabled))
        };
        let Ok(Some((interval, enabled))) = self.memory.read_within(DEADLINE, work) else { return State::Unread };
        self.readings = self.readings.saturating_add(1);
        self.state(interval, enabled)
    }

    /// Returns the state of the sampler by its variables.
    fn state(&self, interval: u64, enabled: Option<u8>) -> State {
        if enabled == Some(0) {
            return State::Disabled("its jemalloc was built with profiling, but started without prof:true");
        }
        match interval {
            logarithm if self.is_binary_logarithm && logarithm <= MAX_BINARY_LOGARITHM => {
                State::On(Bytes(1 << logarithm))
            }
            _ if self.is_binary_logarithm => State::Unread,
            0 => State::Off(OFF_TCMALLOC),
            // The variable is signed. No sample is taken if it is negative.
            interval if interval > i64::MAX.cast_unsigned() => State::Off(OFF_TCMALLOC),
            interval if interval > 1 << MAX_BINARY_LOGARITHM => State::Unread,
            interval => State::On(Bytes(interval)),
        }
    }
}

/// Reason why a tcmalloc does not sample.
const OFF_TCMALLOC: &str =
    "the sampling interval of its tcmalloc is 0, so it does not sample; gperftools needs TCMALLOC_SAMPLE_PARAMETER";

/// Reads bytes of a process; `None` if they cannot be read.
fn read_bytes<const COUNT: usize>(memory: &BoundedMemory, address: AbsAddr) -> Option<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    (memory.read_some(address, &mut bytes).ok()? == COUNT).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    use super::*;

    fn watched(interval: u64, is_binary_logarithm: bool, enabled: Option<u64>) -> WatchedSampler {
        WatchedSampler {
            source: SampleSource::Jemalloc,
            readings: 0,
            since: Instant::now(),
            object: None,
            memory: ImageMemory::open(Pid(std::process::id())).unwrap(),
            interval: AbsAddr(interval),
            is_binary_logarithm,
            enabled: enabled.map(AbsAddr),
        }
    }

    #[test]
    fn variables_are_read_from_the_process() {
        let (interval, enabled) = (AtomicU64::new(19), AtomicU8::new(0));
        let place = |pointer: *const ()| pointer.addr() as u64;
        let at_interval = place(std::ptr::from_ref(&interval).cast());
        let at_enabled = place(std::ptr::from_ref(&enabled).cast());
        let mut sampler = watched(at_interval, true, Some(at_enabled));
        assert!(matches!(sampler.read(), State::Disabled(_)), "prof:true was not given");
        enabled.store(1, Ordering::Relaxed);
        assert_eq!((sampler.read(), sampler.readings), (State::On(Bytes(512 << 10)), 2));
        sampler.since = Instant::now();
        assert!(!sampler.is_settled(), "the process may not have read its options yet");
        sampler.since = sampler.since.checked_sub(SETTLED).unwrap();
        assert!(sampler.is_settled() && !watched(at_interval, true, None).is_settled());
        interval.store(41, Ordering::Relaxed);
        assert_eq!(sampler.read(), State::Unread, "no interval");
        let mut by_bytes = watched(at_interval, false, None);
        assert_eq!(by_bytes.read(), State::On(Bytes(41)));
        interval.store((1 << 40) + 1, Ordering::Relaxed);
        assert_eq!(by_bytes.read(), State::Unread, "no interval");
        interval.store(0, Ordering::Relaxed);
        assert_eq!(by_bytes.read(), State::Off(OFF_TCMALLOC));
        interval.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(by_bytes.read(), State::Off(OFF_TCMALLOC));
        let mut unreadable = watched(8, false, None);
        assert_eq!((unreadable.read(), unreadable.readings), (State::Unread, 0));
    }
}
