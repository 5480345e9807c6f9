//! The gate of the kernel half: whether its programs do their work, only count calls, or do nothing.

use std::time::{Duration, Instant};

use aya::maps::{Array, MapError, PerCpuArray};
use memtrace_common::wire::{MAX_RINGS, SIZE_CLASSES, gate};

use super::error::KernelError;
use super::load::{Kernel, missing, rings};

/// How often blocks were asked for, by their size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// At each index the calls for sizes from that power of two to below the next.
    pub by_class: Vec<u64>,
    /// For how long was counted.
    pub during: Duration,
}

impl Kernel {
    /// From now on events count.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn open(&mut self) -> Result<(), KernelError> {
        self.set_gate(gate::OPEN)
    }

    /// From now on no event counts, and when this returns, whatever did has reached its ring.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn close(&mut self) -> Result<(), KernelError> {
        self.set_gate(gate::CLOSED)?;
        // A change to a map of maps returns when every program that runs now has ended (`maybe_wait_bpf_programs`,
        // kernel/bpf/syscall.c).
        rings(&mut self.ebpf)?
            .set(MAX_RINGS, self.spare.ring(), 0)
            .map_err(|error| KernelError::from_error("wait for running programs", &error))
    }

    /// Counts for `moment` how often blocks of which size are asked for, where probes are in place.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn count_calls(&mut self, moment: Duration) -> Result<Calls, KernelError> {
        const ACTION: &str = "count calls";
        let begun = Instant::now();
        self.set_gate(gate::CALL_RATE)?;
        std::thread::sleep(moment);
        self.close()?;
        let during = begun.elapsed();
        let map = self.ebpf.map("CALLS").ok_or_else(|| missing("CALLS"))?;
        let map = PerCpuArray::<_, u64>::try_from(map).map_err(|error| KernelError::from_error(ACTION, &error))?;
        let class = |class| Ok(map.get(&class, 0)?.iter().sum());
        let by_class = (0..SIZE_CLASSES).map(class).collect::<Result<_, MapError>>();
        Ok(Calls { by_class: by_class.map_err(|error| KernelError::from_error(ACTION, &error))?, during })
    }

    fn set_gate(&mut self, value: u64) -> Result<(), KernelError> {
        let map = self.ebpf.map_mut("GATE").ok_or_else(|| missing("GATE"))?;
        Array::<_, u64>::try_from(map)
            .and_then(|mut gate| gate.set(0, value, 0))
            .map_err(|error| KernelError::from_error("open or close the gate", &error))
    }
}
