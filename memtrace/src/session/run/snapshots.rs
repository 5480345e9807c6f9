//! Completion of the merged snapshots with losses, idle processes, page tables and rusage.

use crate::model::{Losses, Pid, Snapshots, Tick};
use crate::session::sample::PageReader;
use crate::session::track::ProcessTracker;

/// Completes the snapshots of all shards: nothing modifies them after this.
///
/// The order matters: idle processes are added before metadata is read, and the page tables are compared with the
/// totals of all processes.
pub(super) fn complete_snapshots(
    mut snapshots: Snapshots,
    losses: &[&Losses],
    tracker: &mut ProcessTracker,
    pages: Option<&PageReader>,
    start: Tick,
    is_selected: &dyn Fn(&ProcessTracker, Pid) -> bool,
) -> Snapshots {
    let untracked = tracker.losses();
    for snapshot in snapshots.0.values_mut() {
        for losses in losses.iter().copied().chain([&untracked]) {
            snapshot.losses.merge(losses);
        }
        tracker.add_idle(snapshot);
        tracker.refresh_metadata(snapshot);
    }
    if let Some(pages) = pages {
        let tracker = &*tracker;
        pages.reconcile(&mut snapshots, tracker, start, &|pid| is_selected(tracker, pid));
    }
    snapshots
}
