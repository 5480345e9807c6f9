//! Processes and stacks of a recording. Pure.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_model::{
    BlockHistograms, EventClass, ImageId, ImageUsage, LiveChanges, Losses, Node, OomKill, Part, ProcessImage,
    Quantities, Quantity, StackEnd, Tick,
};

use super::assemble::ChangesByPath;
use super::call_paths::CallPaths;
use super::ended::EndedProcesses;
use super::merged_images::MergedImages;
use super::path_totals::{PathKey, PathTotals, PathUsage};

/// Recorded totals of a process image in one event class.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedProcess {
    /// Names, owner, start and end. Only the mapping of its executable is used, for the build ID.
    pub(super) image: ProcessImage,
    /// Totals that belong to no stack.
    pub(super) usage: ImageUsage,
    /// Totals by stack.
    pub(super) stacks: Vec<RecordedStack>,
}

/// Recorded totals of a stack.
#[derive(Clone, Debug)]
pub(super) struct RecordedStack {
    /// Path in the [`CallPaths`].
    pub(super) path: Node,
    /// End of the walk.
    pub(super) end: StackEnd,
    /// Part of the process.
    pub(super) part: Part,
    /// The totals.
    pub(super) usage: Quantities,
    /// Sizes, lifetimes and ages of blocks.
    pub(super) histograms: BlockHistograms,
    /// Changes of the live bytes over time; empty if they are not known.
    pub(super) live_changes: LiveChanges,
}

/// Processes of a recording in all event classes.
///
/// All processes are in memory at once, in the compact encoding of ended processes. They take less memory than the
/// file, which has a size limit.
#[derive(Debug)]
pub(super) struct RecordedProcesses {
    ended: EndedProcesses,
    classes: BTreeMap<EventClass, RecordedClass>,
}

/// Running processes, kills and losses of an event class.
#[derive(Debug)]
pub(super) struct RecordedClass {
    pub(super) running: Vec<RunningProcess>,
    pub(super) oom_kills: BTreeSet<OomKill>,
    pub(super) losses: Losses,
}

/// A process that runs at the moment of the report.
#[derive(Debug)]
pub(super) struct RunningProcess {
    pub(super) id: ImageId,
    pub(super) image: ProcessImage,
    pub(super) usage: ImageUsage,
    pub(super) totals: PathTotals,
    pub(super) live_changes: ChangesByPath,
}

impl RecordedProcesses {
    /// Returns an empty collection. `paths`: call paths of the stacks. `keep_ended`: maximum number of listed ended
    /// images in each event class. `start`: start of tracing.
    pub(super) fn new(paths: CallPaths, keep_ended: usize, start: Tick) -> Self {
        Self { ended: EndedProcesses::with_paths(paths, keep_ended, start), classes: BTreeMap::new() }
    }

    /// Adds an event class.
    pub(super) fn add_class(&mut self, class: EventClass, oom_kills: BTreeSet<OomKill>, losses: Losses) {
        self.classes.insert(class, RecordedClass { running: Vec::new(), oom_kills, losses });
    }

    /// Adds a process image to a class.
    pub(super) fn add(&mut self, class: EventClass, id: ImageId, process: RecordedProcess) {
        let RecordedProcess { image, mut usage, stacks } = process;
        usage.total = stacks.iter().map(|stack| stack.usage.additive()).sum();
        let mut live_changes = ChangesByPath::default();
        let entry = |stack: RecordedStack| {
            let RecordedStack { path, end, part, mut usage, histograms, live_changes: changes } = stack;
            if end == StackEnd::Merged {
                // A recording has no number of merged stacks for a single merged stack.
                usage[Quantity::MergedStacks] = usage[Quantity::MergedStacks].max(1);
            }
            let key = PathKey { path, end, part };
            if image.ended.is_none() && !changes.as_slice().is_empty() {
                live_changes.entry(key).or_default().merge(&changes);
            }
            (key, PathUsage { usage, histograms })
        };
        let stacks = PathTotals::new(stacks.into_iter().map(entry).collect());
        if let Some((end, at)) = image.ended {
            usage.ended = Some(end);
            self.ended.add_converted(class, id, (end, at), &image, usage, stacks);
        } else if let Some(class) = self.classes.get_mut(&class) {
            class.running.push(RunningProcess { id, image, usage, totals: stacks, live_changes });
        }
    }

    /// Adds an ended process image that is a member of a group. The group has the stacks of the image. The group is
    /// found by the executable and the owner of `image`.
    pub(super) fn add_member(&mut self, class: EventClass, id: ImageId, image: &ProcessImage, usage: ImageUsage) {
        if let Some((end, at)) = image.ended {
            let usage = ImageUsage { ended: Some(end), ..usage };
            self.ended.add_member(class, id, (end, at), image, usage);
        }
    }

    /// Adds a group with the stacks of all its members, and the members that are only known by their sums. `group`:
    /// image with the executable and the owner of the group, totals of the merged members as usage, and stacks of all
    /// members. `merged`: facts of the merged members.
    pub(super) fn add_group(&mut self, class: EventClass, group: RecordedProcess, merged: MergedImages) {
        let RecordedProcess { image, usage, stacks } = group;
        let entry = |stack: RecordedStack| {
            // Only running processes have trends. The processes of a group have their peaks at different times.
            let RecordedStack { path, end, part, usage, histograms, live_changes: _ } = stack;
            let usage = usage.with(Quantity::AtPeakBytes, 0);
            (PathKey { path, end, part }, PathUsage { usage, histograms })
        };
        self.ended.add_group(class, &image, stacks.into_iter().map(entry).collect(), merged, usage);
    }

    /// Returns the ended processes, and the other data by event class.
    pub(super) fn into_parts(self) -> (EndedProcesses, BTreeMap<EventClass, RecordedClass>) {
        (self.ended, self.classes)
    }
}
