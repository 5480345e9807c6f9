//! Completion of the merged snapshots with losses, idle processes, page tables and rusage.

use std::ops::Range;

use crate::model::{ImageId, Losses, Snapshots, Tick};
use crate::session::sample::PageReader;
use crate::session::track::{Coverage, ProcessTracker};

/// Completes the snapshots of all shards: nothing modifies them after this.
///
/// The order matters: idle processes are added before metadata is read, and the page tables are compared with the
/// totals of all processes.
pub(super) fn complete_snapshots(
    mut snapshots: Snapshots,
    losses: &[&Losses],
    tracker: &mut ProcessTracker,
    pages: Option<&PageReader>,
    window: &Range<Tick>,
    coverage: &Coverage,
    is_selected: &dyn Fn(&ProcessTracker, ImageId) -> bool,
) -> Snapshots {
    let untracked = tracker.losses();
    for (&class, snapshot) in &mut snapshots.0 {
        tracker.add_missed_ends(snapshot, window.end);
        snapshot.end_images(class);
        for losses in losses.iter().copied().chain([&untracked]) {
            snapshot.losses.merge(losses);
        }
        tracker.add_idle(snapshot, class, coverage, is_selected);
        tracker.refresh_metadata(snapshot);
    }
    if let Some(pages) = pages {
        let tracker = &*tracker;
        pages.reconcile(&mut snapshots, tracker, window.start, &|id| is_selected(tracker, id));
    }
    snapshots
}
