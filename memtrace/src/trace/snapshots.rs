//! Completion of the merged snapshots with losses, idle processes, page tables and rusage.

use std::ops::Range;

use memtrace_model::{EventClass, ImageId, ImageUsage, Losses, Snapshot, Snapshots, Tick};

use crate::targets::track::{Coverage, ProcessTracker, lifetimes};
use crate::trace::sample::PageReader;

/// Returns the totals of pages and mappings, which [`complete_snapshots`] compares with the page tables.
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

/// Completes the snapshots of all shards: nothing modifies them after this.
///
/// The order matters: idle processes are added before metadata is read, and the page tables are compared with the
/// totals of all processes.
pub(super) fn complete_snapshots(
    mut snapshots: Snapshots,
    losses: &Losses,
    tracker: &mut ProcessTracker,
    pages: Option<&PageReader>,
    window: &Range<Tick>,
    coverage: &Coverage,
    is_selected: &dyn Fn(&ProcessTracker, ImageId) -> bool,
) -> Snapshots {
    let untracked = tracker.losses();
    for (&class, snapshot) in &mut snapshots.0 {
        lifetimes::add_missed_ends(tracker, snapshot, window.end);
        snapshot.end_images(class);
        for losses in [losses, &untracked] {
            snapshot.losses.merge(losses);
        }
        lifetimes::add_idle(tracker, snapshot, class, coverage, is_selected);
        tracker.refresh_metadata(snapshot);
    }
    if let Some(pages) = pages {
        let tracker = &*tracker;
        pages.reconcile(&mut snapshots, tracker, window.start, &|id| is_selected(tracker, id));
    }
    snapshots
}
