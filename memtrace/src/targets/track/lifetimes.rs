//! Adds missed ends of images, and processes without events, to the snapshots of a run.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_host::procfs;
use memtrace_model::{EventClass, ImageEnd, ImageId, ImageUsage, Pid, Snapshot, Tick};

use super::coverage::Coverage;
use super::tracker::ProcessTracker;

/// Adds the image ends that perf has reported up to `now`, if `snapshot` lacks them because rings were full.
pub(crate) fn add_missed_ends(tracker: &ProcessTracker, snapshot: &mut Snapshot, now: Tick) {
    let killed: BTreeSet<_> = snapshot.oom_kills.iter().map(|kill| kill.victim).collect();
    for (&id, image) in tracker.registry.images() {
        let Some((end, at)) = image.ended.filter(|(_, at)| *at <= now) else { continue };
        let is_missing = !snapshot.ends.contains_key(&id)
            && match end {
                ImageEnd::Exec => snapshot.images.contains_key(&id),
                // Other threads may still run after the exit of the main thread, so check that the process has ended.
                ImageEnd::Exit | ImageEnd::OomKill => !tracker.registry.is_latest(id) || procfs::has_ended(id.pid),
            };
        if is_missing {
            let is_killed = end == ImageEnd::Exit && killed.contains(&id);
            snapshot.ends.insert(id, (if is_killed { ImageEnd::OomKill } else { end }, at));
        }
    }
}

/// Adds the traced processes without events of `class` to `snapshot`, so that the report lists every process.
/// `is_selected` returns true for images that the filter selects.
pub(crate) fn add_idle(
    tracker: &ProcessTracker,
    snapshot: &mut Snapshot,
    class: EventClass,
    coverage: &Coverage,
    is_selected: &dyn Fn(&ProcessTracker, ImageId) -> bool,
) {
    let untraced = coverage.untraced_images(class);
    let is_listed = |id: ImageId| {
        tracker.is_program(id) && tracker.is_traced(id.pid) && !untraced.contains(&id) && is_selected(tracker, id)
    };
    for (&id, &(end, _)) in &snapshot.ends {
        if end != ImageEnd::Exec && !snapshot.images.contains_key(&id) && is_listed(id) {
            snapshot.images.insert(id, ImageUsage { ended: Some(end), ..ImageUsage::default() });
        }
    }
    let mut last: BTreeMap<Pid, ImageId> = BTreeMap::new();
    for &id in tracker.registry.images().keys() {
        // Ordinals ascend, so the last image of each process stays.
        last.insert(id.pid, id);
    }
    for id in last.into_values() {
        let has_ended = snapshot.ends.contains_key(&id);
        if !has_ended && !snapshot.images.contains_key(&id) && is_listed(id) {
            snapshot.images.insert(id, ImageUsage::default());
        }
    }
}
