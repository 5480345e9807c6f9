//! Sentences about the memory of the machine, the last-level cache, and the memory limit that a working set needs.

use memtrace_model::format::{counted, percent, short};
use memtrace_model::{Assessment, CacheFit, Fit, LimitedGroup, PerSecond, WorkingSets};

use crate::escape::visible;

/// Minimum number of seconds for an assessment.
const LEAST: u64 = 30;

/// Returns a sentence about the working set of the machine. The reclaim activity shows if it fits in the memory of the
/// machine.
pub(super) fn of_machine(sets: &WorkingSets, has_swap: bool) -> String {
    let PerSecond { all, scanning, paging } = sets.seconds;
    let counts = format!(
        "pages were scanned in {scanning} of {all} seconds, 1 MiB or more was read back in {paging}, and kswapd ran {} times",
        sets.kswapd_runs
    );
    let text = match sets.seconds.assessment_after(LEAST) {
        Assessment::TooShort => {
            return format!("Memory of the machine: not assessed, because this run is shorter than {LEAST} s.");
        }
        Assessment::Quiet => "is larger than the working set",
        Assessment::Bursts => "was short at times",
        Assessment::Near => "is about as large as the working set",
        Assessment::Beyond => "is smaller than the working set",
    };
    let swap = if has_swap { "" } else { " There is no swap device, so paging of anonymous memory cannot show." };
    format!("Memory of the machine {text}: {counts}.{swap}")
}

/// Returns a sentence for each cgroup that was at its limit.
pub(super) fn of_limits(sets: &WorkingSets) -> impl Iterator<Item = String> {
    sets.limits.iter().filter(|group| group.seconds.scanning > 0).map(|LimitedGroup { path, limit, seconds }| {
        let PerSecond { all, scanning, paging } = seconds;
        let text = match seconds.assessment_after(LEAST) {
            Assessment::TooShort => "was reached",
            Assessment::Quiet | Assessment::Bursts => "was reached at times",
            Assessment::Near => "is about as large as the working set",
            Assessment::Beyond => "is smaller than the working set",
        };
        format!(
            "The memory limit of {} ({limit}) {text}: it was reached in {scanning} of {all} seconds, and 1 MiB or more was read \
             back in {paging}.",
            visible(path)
        )
    })
}

/// Returns a sentence about the use of the last-level cache; `None` if it was not measured.
pub(super) fn of_cache(sets: &WorkingSets) -> Option<String> {
    let cache = sets.cache?;
    let text = match cache.fit(sets.duration()) {
        CacheFit::Unknown => "too few for an assessment",
        CacheFit::Fits => "the memory that is in use fits into it",
        CacheFit::Exceeds => "the memory that is in use exceeds it",
    };
    let hits = cache.hits().map(|hits| format!(", {} hits", percent(hits))).unwrap_or_default();
    let references = counted(cache.references, "reference", "references");
    Some(format!("Last-level cache: {references} in {}{hits}: {text}.", short(sets.duration())))
}

/// Returns sentences with the estimated memory limit, its assumptions, and a comparison with `memory.high`.
pub(super) fn of_fit(fit: &Fit) -> String {
    let others = match fit.has_swap {
        true => "other pages that were not touched can be swapped out",
        false => "all other pages count, because there is no swap device",
    };
    let high = match fit.high {
        None => String::new(),
        Some(high) if high < fit.needed => format!(" memory.high ({high}) is below the estimate: expect paging."),
        Some(high) => format!(" memory.high ({high}) is above the estimate."),
    };
    format!(
        "Estimated memory limit: {}, plus memory of the kernel and of other processes of the cgroup. Untouched pages of files \
         can be read again, and {others}.{high}",
        fit.needed
    )
}
