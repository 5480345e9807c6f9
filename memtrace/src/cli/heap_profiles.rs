//! Moments of heap profiles.

use super::conflict::ArgConflict;
use crate::run_kit::config::{Moment, Output};
use crate::run_kit::reports::heap_profiles::MAX_HEAP_PROFILES;

/// Checks that an output has heap profiles of several moments, if some are given.
pub(super) fn check(moments: &[Moment], outputs: &[Output]) -> Result<(), ArgConflict> {
    if moments.len() > MAX_HEAP_PROFILES {
        return Err(ArgConflict::new("--heap-profile is given more than 32 times", "give fewer times"));
    }
    if !moments.is_empty() && !outputs.iter().any(|output| output.format.shows_moments()) {
        return Err(ArgConflict::new(
            "--heap-profile applies to Perfetto traces of stacks",
            "add one, as in -o run.pftrace, or show one time with `memtrace report --at`",
        ));
    }
    Ok(())
}
