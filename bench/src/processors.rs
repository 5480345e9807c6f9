//! Who runs where: the tracers on one processor, their targets on others.

use std::io;
use std::mem;

use anyhow::{Context as _, Result, bail};

/// How many processors a target can make use of.
const MOST: usize = 4;

/// The processors of the targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Processors {
    tracers: usize,
    targets: Vec<usize>,
}

impl Processors {
    /// One processor, for a target with one thread.
    pub(crate) fn one(&self) -> String {
        self.list(1)
    }

    /// All that there are, for a target with several threads.
    pub(crate) fn all(&self) -> String {
        self.list(MOST)
    }

    /// Lets this process, and what it starts from now on, run on all of them: where tracer and target compete, as they do on a
    /// busy machine.
    pub(crate) fn share(&self) -> Result<()> {
        keep_to(self.targets.iter().copied().chain([self.tracers]))
    }

    fn list(&self, most: usize) -> String {
        self.targets.iter().take(most).map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Keeps this process, and what it starts, to the first processor, and leaves the others to the targets, which choose
/// theirs themselves.
pub(crate) fn divide() -> Result<Processors> {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the size is that of the set behind the pointer.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot ask for the processors");
    }
    // SAFETY: the number is below the set's size.
    let mine = (0..libc::CPU_SETSIZE as usize).filter(|&number| unsafe { libc::CPU_ISSET(number, &set) });
    let mine: Vec<usize> = mine.collect();
    let Some((&first, targets)) = mine.split_first().filter(|(_, targets)| !targets.is_empty()) else {
        bail!("two processors are needed, one for the tracers and one for their targets");
    };
    keep_to([first])?;
    Ok(Processors { tracers: first, targets: targets.to_vec() })
}

/// Keeps this process, and what it starts, to these processors, which it was allowed at its beginning.
fn keep_to(processors: impl IntoIterator<Item = usize>) -> Result<()> {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for number in processors {
        // SAFETY: the number was in a set of the same size.
        unsafe { libc::CPU_SET(number, &mut set) };
    }
    // SAFETY: the size is that of the set behind the pointer.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot choose processors");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_gets_as_many_processors_as_it_has_use_for() {
        let processors = Processors { tracers: 0, targets: vec![1, 3, 4, 5, 6] };
        assert_eq!(processors.one(), "1");
        assert_eq!(processors.all(), "1,3,4,5");
    }
}
