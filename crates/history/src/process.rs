//! A process of the profile, from its totals and its metadata. Pure.

use std::ops::Range;
use std::time::Duration;

use memtrace_model::{Comm, Demotion, ImageId, ImageStart, ImageUsage, ProcessImage, ProcessProfile, StallStats, Tick};

/// Returns the process that ran `image`, in a trace during `window`.
pub(super) fn process(
    id: ImageId,
    usage: &ImageUsage,
    image: &ProcessImage,
    end: Option<Tick>,
    window: &Range<Tick>,
) -> ProcessProfile {
    let end = end.map(|at| at.since_start().saturating_sub(window.start.since_start()));
    let (unmatched_frees, inherited_frees) = unknown_frees(image, usage, window.start);
    ProcessProfile {
        exe: image.exe.clone(),
        ended: usage.ended,
        ended_after: end.filter(|_| usage.ended.is_some()),
        total: usage.total,
        unmatched_frees,
        inherited_frees,
        repeated_frees: usage.repeated_frees,
        unmatched_samples: usage.unmatched_samples,
        shares_memory_of: usage.shares_memory_of,
        demotion: demotion(usage, window.start),
        peak: usage.peak,
        user: image.user.clone(),
        cgroup: image.cgroup.clone(),
        threads: image.threads,
        thread_names: image.thread_names.clone(),
        traced: traced(image, window),
        // Sum over all cgroups.
        stalls: StallStats::by_kind(usage.stalls.iter().map(|(key, stalls)| (key.work, stalls))),
        resident: usage.resident.clone(),
        resident_is_unknown: usage.resident_is_unknown,
        faults: usage.counts.faults(),
        peak_rss: usage.counts.peak_rss(),
        rss: usage.rss,
        ..ProcessProfile::new(id.pid, shown_name(&image.comm))
    }
}

/// Returns the demotion of an image, with its time since `start`.
pub(super) const fn demotion(usage: &ImageUsage, start: Tick) -> Demotion {
    let demotion = usage.demotion;
    Demotion { at: Tick(demotion.at.0.saturating_sub(start.0)), ..demotion }
}

/// Returns the name of a process in reports.
pub(super) fn shown_name(comm: &Comm) -> Comm {
    if comm.raw().is_empty() { "?".into() } else { comm.clone() }
}

/// Returns the unmatched and the inherited frees of an image.
pub(super) fn unknown_frees(image: &ProcessImage, usage: &ImageUsage, start: Tick) -> (u64, u64) {
    // A process that was forked during tracing has no untraced blocks of its own.
    match image.start {
        ImageStart::Fork(tick) if tick >= start => (0, usage.unmatched_frees),
        ImageStart::Fork(_) | ImageStart::Unseen | ImageStart::Exec(_) => (usage.unmatched_frees, 0),
    }
}

/// Returns the time that the image ran during `window`.
pub(super) fn traced(image: &ProcessImage, window: &Range<Tick>) -> Duration {
    let start = image.start.tick().map_or(window.start, |tick| tick.max(window.start));
    let end = image.ended.map_or(window.end, |(_, tick)| tick.min(window.end));
    end.since_start().saturating_sub(start.since_start())
}

#[cfg(test)]
mod tests {
    use memtrace_model::ImageEnd;

    use super::*;

    #[test]
    fn traced_time_is_the_overlap_of_process_and_window() {
        let of = |start, ended: Option<u32>| {
            let image =
                ProcessImage { start, ended: ended.map(|at| (ImageEnd::Exit, Tick(at))), ..ProcessImage::default() };
            traced(&image, &(Tick(100)..Tick(300)))
        };
        let ticks = |ticks| Tick(ticks).since_start();
        assert_eq!(of(ImageStart::Unseen, None), ticks(200));
        assert_eq!(of(ImageStart::Fork(Tick(40)), None), ticks(200));
        assert_eq!(of(ImageStart::Fork(Tick(150)), None), ticks(150));
        assert_eq!(of(ImageStart::Exec(Tick(150)), Some(160)), ticks(10));
        assert_eq!(of(ImageStart::Unseen, Some(130)), ticks(30));
        assert_eq!(of(ImageStart::Unseen, Some(400)), ticks(200));
        assert_eq!(of(ImageStart::Fork(Tick(40)), Some(50)), ticks(0));
    }
}
