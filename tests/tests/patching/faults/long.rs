//! All fault points.

use super::*;
use crate::patching::long::cycles_of;

/// Number of times that each fault point acts. `MEMTRACE_CYCLES=10000` makes it a hundred times.
const ROUNDS: u64 = 2;

/// Lets processes die at all fault points, with each of three targets in turn.
fn assert_survival_of_all(killed: Killed) {
    let targets = [patch_zoo::with_threads, patch_zoo::with_interruptions, patch_zoo::with_jemalloc];
    for (_, start) in (0..cycles_of(ROUNDS)).zip(targets.iter().cycle()) {
        assert_survival(start, FAULTS, killed);
    }
}

#[test]
fn targets_survive_the_death_of_the_patcher_at_each_step() {
    assert_survival_of_all(Killed::Patcher);
}

#[test]
fn targets_survive_the_death_of_memtrace_at_each_step() {
    assert_survival_of_all(Killed::Memtrace);
}
