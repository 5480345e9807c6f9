//! Recording gate: decides if the BPF programs record events, only count calls, or do nothing.

use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{Array, MapError, PerCpuArray};
use memtrace_common::wire::{MAX_RINGS, SIZE_CLASSES, gate};
use memtrace_model::{Bytes, CallsBySize};

use super::bpf::Bpf;
use super::counters;
use super::error::KernelError;
use super::rings::RingReader;

/// Smallest size of a ring: one page, on machines with the largest pages that Linux supports.
const SPARE_SIZE: Bytes = Bytes(1 << 16);

/// Allocation calls in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallRate {
    /// Number of calls in each size class.
    pub calls: CallsBySize,
    /// Number of hits of the probes of tags, spans and marks.
    pub other_hits: u64,
    /// Duration of the period.
    pub during: Duration,
}

pub(super) struct Gate {
    /// Ring without a writer; see [`Gate::close`].
    spare: RingReader,
}

impl Gate {
    pub(super) fn new() -> Result<Self, KernelError> {
        Ok(Self { spare: RingReader::create(SPARE_SIZE)? })
    }

    /// Starts recording.
    pub(super) fn open(&self, bpf: &mut Bpf) -> Result<(), KernelError> {
        set(bpf, gate::OPEN)
    }

    /// Lets the BPF programs count the usage of threads, and record nothing.
    pub(super) fn count(&self, bpf: &mut Bpf) -> Result<(), KernelError> {
        set(bpf, gate::COUNTING)
    }

    /// Stops recording. On return, all records are in their rings.
    pub(super) fn close(&self, bpf: &mut Bpf) -> Result<(), KernelError> {
        set(bpf, gate::CLOSED)?;
        // An update of a map of maps returns after all running programs have ended (`maybe_wait_bpf_programs`,
        // kernel/bpf/syscall.c).
        bpf.rings()?
            .set(MAX_RINGS, self.spare.map(), 0)
            .map_err(|error| KernelError::from_error("wait for running BPF programs", &error))
    }

    /// Counts the calls and hits at the attached probes for `period`.
    pub(super) fn count_calls(&self, bpf: &mut Bpf, period: Duration) -> Result<CallRate, KernelError> {
        let failed = |error: MapError| KernelError::from_error("count calls", &error);
        let other_hits_before = other_hits(bpf);
        let start = Instant::now();
        set(bpf, gate::CALL_RATE)?;
        thread::sleep(period);
        self.close(bpf)?;
        let during = start.elapsed();
        let other_hits = other_hits(bpf).saturating_sub(other_hits_before);
        let map = PerCpuArray::<_, u64>::try_from(bpf.map_mut("CALLS")?).map_err(failed)?;
        let class = |class| Ok((Bytes(1_u64 << class), map.get(&class, 0)?.iter().sum()));
        let calls = (0..SIZE_CLASSES).map(class).collect::<Result<_, MapError>>().map_err(failed)?;
        Ok(CallRate { calls, other_hits, during })
    }
}

fn other_hits(bpf: &Bpf) -> u64 {
    counters::map(bpf).map_or(0, |map| counters::other_hits(&map))
}

fn set(bpf: &mut Bpf, value: u64) -> Result<(), KernelError> {
    Array::<_, u64>::try_from(bpf.map_mut("GATE")?)
        .and_then(|mut gate| gate.set(0, value, 0))
        .map_err(|error| KernelError::from_error("set the recording gate", &error))
}
