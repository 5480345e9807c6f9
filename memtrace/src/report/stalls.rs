//! Sums of stalls.

use std::collections::BTreeMap;

use crate::model::{ProcessProfile, Profile, ReclaimKind, StallStats};

/// Returns the stalls of all processes, by kind.
pub(super) fn by_work(profile: &Profile) -> BTreeMap<ReclaimKind, StallStats> {
    StallStats::by_work(profile.processes.iter().flat_map(|process| &process.stalls).map(|(&work, book)| (work, book)))
}

/// Returns the stalls of a process.
pub(super) fn of(process: &ProcessProfile) -> StallStats {
    StallStats::sum(process.stalls.values())
}
