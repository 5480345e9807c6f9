//! Assignment of processors: one for the tracers, the others for the targets.

use std::io;
use std::mem;

use anyhow::{Context as _, Result, bail};

/// Maximum number of processors that a target can use.
const MAX_PER_TARGET: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Processors {
    tracers: usize,
    targets: Vec<usize>,
}

impl Processors {
    /// Returns the index of one processor, for a target with one thread.
    pub(crate) fn one(&self) -> String {
        self.list(1)
    }

    /// Returns the indices of the processors for a target with several threads, separated by commas.
    pub(crate) fn all(&self) -> String {
        self.list(MAX_PER_TARGET)
    }

    /// Returns the indices of all processors, separated by commas.
    pub(crate) fn with_tracers(&self) -> String {
        let all = self.targets.iter().chain([&self.tracers]);
        all.map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Allows this process and its future children to run on all processors. Tracer and target then compete for
    /// processors, as on a busy machine.
    pub(crate) fn share(&self) -> Result<()> {
        set_affinity(self.targets.iter().copied().chain([self.tracers]))
    }

    fn list(&self, limit: usize) -> String {
        self.targets.iter().take(limit).map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Restricts this process and its future children to the first processor. Targets move to other processors themselves.
pub(crate) fn assign() -> Result<Processors> {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the size is the size of the set at the pointer.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot read the processor affinity");
    }
    // SAFETY: the number is below `CPU_SETSIZE`.
    let allowed = (0..libc::CPU_SETSIZE as usize).filter(|&number| unsafe { libc::CPU_ISSET(number, &set) });
    let allowed: Vec<usize> = allowed.collect();
    let Some((&first, targets)) = allowed.split_first().filter(|(_, targets)| !targets.is_empty()) else {
        bail!("the benchmarks need two processors: one for the tracers and one for their targets");
    };
    set_affinity([first])?;
    Ok(Processors { tracers: first, targets: targets.to_vec() })
}

/// Restricts this process and its future children to `processors`. This process must have been allowed to use them at
/// its start.
fn set_affinity(processors: impl IntoIterator<Item = usize>) -> Result<()> {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for number in processors {
        // SAFETY: the number is below `CPU_SETSIZE`, because it was in a set.
        unsafe { libc::CPU_SET(number, &mut set) };
    }
    // SAFETY: the size is the size of the set at the pointer.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot set the processor affinity");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_gets_at_most_four_processors() {
        let processors = Processors { tracers: 0, targets: vec![1, 3, 4, 5, 6] };
        assert_eq!(processors.one(), "1");
        assert_eq!(processors.all(), "1,3,4,5");
        assert_eq!(processors.with_tracers(), "1,3,4,5,6,0");
    }
}
