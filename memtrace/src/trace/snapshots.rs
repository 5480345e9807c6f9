//! Completes the merged snapshots with losses and idle processes.

use memtrace_model::{EventClass, ImageId, ImageUsage, Losses, Snapshot, Snapshots, Tick};

use crate::targets::track::{Coverage, ProcessTracker, lifetimes};

/// Returns a copy of the totals of pages and mappings, taken before the comparison with the page tables.
pub(super) fn page_totals(snapshots: &Snapshots) -> Snapshots {
    let totals = |usage: &ImageUsage| ImageUsage {
        total: usage.total,
        merged_stacks: usage.merged_stacks,
        by_stack: usage.by_stack.clone(),
        ..ImageUsage::default()
    };
    let of_class = |(&class, snapshot): (&EventClass, &Snapshot)| {
        let images = snapshot.images.iter().map(|(&id, usage)| (id, totals(usage))).collect();
        (class, Snapshot { images, ..Snapshot::default() })
    };
    let classes = snapshots.0.iter().filter(|(class, _)| class.counts_pages() || class.holds_mappings());
    Snapshots(classes.map(of_class).collect())
}

/// Completes the snapshots of all shards. `end`: end time of the shards. Idle processes are added before the metadata is read,
/// so that they get metadata too.
pub(super) fn complete_snapshots(
    mut snapshots: Snapshots,
    losses: &Losses,
    tracker: &mut ProcessTracker,
    end: Tick,
    coverage: &Coverage,
    is_selected: &dyn Fn(&ProcessTracker, ImageId) -> bool,
) -> Snapshots {
    let untracked = tracker.losses();
    for (&class, snapshot) in &mut snapshots.0 {
        lifetimes::add_missed_ends(tracker, snapshot, end);
        snapshot.end_images(class);
        for losses in [losses, &untracked] {
            snapshot.losses.merge(losses);
        }
        lifetimes::add_idle(tracker, snapshot, class, coverage, is_selected);
        tracker.refresh_metadata(snapshot);
    }
    snapshots
}
