//! Waits for memory, added up.

use std::collections::BTreeMap;

use crate::model::{ProcessProfile, Profile, ReclaimKind, StallStats};

/// Those of all processes, by what was done meanwhile.
pub(super) fn by_work(profile: &Profile) -> BTreeMap<ReclaimKind, StallStats> {
    StallStats::by_work(profile.processes.iter().flat_map(|process| &process.stalls).map(|(&work, book)| (work, book)))
}

/// Those of a process, all kinds together.
pub(super) fn of(process: &ProcessProfile) -> StallStats {
    StallStats::sum(process.stalls.values())
}
