//! Sums of stalls.

use std::collections::BTreeMap;

use memtrace_model::{ProcessProfile, Profile, ReclaimKind, StallStats};

/// Returns the stalls of all processes, by kind.
pub(super) fn by_kind(profile: &Profile) -> BTreeMap<ReclaimKind, StallStats> {
    StallStats::by_kind(
        profile.processes.iter().flat_map(|process| &process.stalls).map(|(&kind, stats)| (kind, stats)),
    )
}

/// Returns the sum of all stalls of a process.
pub(super) fn of(process: &ProcessProfile) -> StallStats {
    StallStats::sum(process.stalls.values())
}
