//! A group of ended images: one executable, cgroup and user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_model::{
    Bytes, Comm, Demotion, EndedGroup, EndedRun, EventClass, ImageEnd, ImageUsage, Magnitude, Node, PageFaults, Pid,
    ProcessImage, ProcessProfile, Quantity, StackEnd, StallStats, Tick,
};
use rustc_hash::FxHashMap;

use super::group_key::GroupKey;
use super::row::{Row, since, size};
use crate::call_paths::CallPaths;
use crate::merge_smallest::SmallStacks;
use crate::merged_images::MergedImages;
use crate::path_totals::{PathKey, PathTotals, PathUsage, TotalParts};
use crate::process;

/// Maximum number of distinct names that are counted. Further names cannot become the name of the group.
const MAX_NAMES: usize = 8;

/// Sums over ended images.
#[derive(Debug)]
pub(crate) struct Group {
    pub(super) key: GroupKey,
    exe: Option<PathBuf>,
    names: BTreeMap<Comm, u64>,
    ends: BTreeMap<ImageEnd, u64>,
    first_start: Duration,
    last_end: Duration,
    /// Sum of the times that the images ran during the trace.
    traced: Duration,
    /// Totals without stacks.
    pub usage: ImageUsage,
    inherited_frees: u64,
    faults: Option<PageFaults>,
    peak_rss: Option<Bytes>,
    stacks: TotalParts,
}

impl Group {
    /// Returns a group without images.
    pub(super) fn new(key: GroupKey) -> Self {
        Self {
            key,
            exe: None,
            names: BTreeMap::new(),
            ends: BTreeMap::new(),
            first_start: Duration::MAX,
            last_end: Duration::ZERO,
            traced: Duration::ZERO,
            usage: ImageUsage::default(),
            inherited_frees: 0,
            faults: None,
            peak_rss: None,
            stacks: TotalParts::default(),
        }
    }

    /// Adds an image with its stacks. `start`: start of tracing.
    pub(super) fn add(&mut self, row: Row, start: Tick, paths: &mut CallPaths) {
        let run = row.run(start);
        let (image, usage) = (row.image(), row.usage());
        self.count_name(row.facts.comm.clone(), 1);
        self.set_exe(row.facts.exe.clone());
        *self.ends.entry(run.ended).or_default() += 1;
        self.first_start = self.first_start.min(run.start);
        self.last_end = self.last_end.max(run.end);
        self.traced += process::traced(&image, &(start..Tick(u32::MAX)));
        let (unmatched, inherited) = process::unknown_frees(&image, &usage, start);
        self.inherited_frees += inherited;
        self.faults = sum(self.faults, usage.counts.faults());
        self.peak_rss = self.peak_rss.max(usage.counts.peak_rss());
        let has_own = row.has_addresses || usage.peak.is_some() || row.stacks.keys().any(is_of_thread);
        let Row { stacks, has_addresses, .. } = row;
        self.stacks.push(if has_own { common_stacks(&stacks, has_addresses, paths) } else { stacks });
        self.usage.merge(ImageUsage { unmatched_frees: unmatched, ..without_own_values(usage) });
    }

    /// Adds images that a recording has merged, so that only their sums are known. `image`: names of the group.
    /// `usage`: totals of the images, without stacks.
    pub(super) fn add_merged(&mut self, image: &ProcessImage, merged: MergedImages, usage: ImageUsage, start: Tick) {
        let MergedImages { ends, traced, inherited_frees, first_start, last_end } = merged;
        if image.comm != Comm::default() {
            self.count_name(image.comm.clone(), ends.values().sum());
        }
        self.set_exe(image.exe.clone());
        for (end, images) in ends {
            *self.ends.entry(end).or_default() += images;
            self.first_start = self.first_start.min(since(start, first_start));
            self.last_end = self.last_end.max(since(start, last_end));
        }
        self.traced += traced;
        let inherited_frees = inherited_frees.min(usage.unmatched_frees);
        self.inherited_frees += inherited_frees;
        self.faults = sum(self.faults, usage.counts.faults());
        self.peak_rss = self.peak_rss.max(usage.counts.peak_rss());
        let unmatched_frees = usage.unmatched_frees - inherited_frees;
        self.usage.merge(ImageUsage { unmatched_frees, ..without_own_values(usage) });
    }

    /// Adds the images of another group.
    pub(super) fn merge(&mut self, other: Self) {
        other.names.into_iter().for_each(|(name, images)| self.count_name(name, images));
        self.set_exe(other.exe);
        for (end, images) in other.ends {
            *self.ends.entry(end).or_default() += images;
        }
        self.first_start = self.first_start.min(other.first_start);
        self.last_end = self.last_end.max(other.last_end);
        self.traced += other.traced;
        self.inherited_frees += other.inherited_frees;
        self.faults = sum(self.faults, other.faults);
        self.peak_rss = self.peak_rss.max(other.peak_rss);
        self.usage.merge(other.usage);
        self.stacks.append(other.stacks);
    }

    /// Removes the cgroups from the keys of stalls.
    pub(super) fn forget_cgroups(&mut self) {
        for (mut key, stalls) in std::mem::take(&mut self.usage.stalls) {
            key.group = None;
            self.usage.stalls.entry(key).or_default().merge(&stalls);
        }
    }

    fn count_name(&mut self, name: Comm, images: u64) {
        if self.names.len() < MAX_NAMES || self.names.contains_key(&name) {
            *self.names.entry(name).or_default() += images;
        }
    }

    /// Sets the path of the executable. If the images have several paths, the first in alphabetical order is used.
    fn set_exe(&mut self, exe: Option<PathBuf>) {
        self.exe = match (self.exe.take(), exe) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
    }

    /// Adds stacks of images that were added without their stacks.
    pub(super) fn add_stacks(&mut self, stacks: PathTotals) {
        self.stacks.push(stacks);
    }

    /// Returns the number of entries that the stacks count as in the limit of entries. A stack can have several entries.
    pub(super) fn entries(&self) -> usize {
        self.stacks.size()
    }

    /// Merges the entries of each stack into one entry.
    pub(super) fn merge_parts(&mut self) {
        let all = self.stacks.take();
        self.stacks.push(all);
    }

    /// Iterates over the paths of all stacks.
    pub(super) fn paths(&self) -> impl Iterator<Item = Node> + '_ {
        self.stacks.iter().map(|(key, _)| key.path)
    }

    /// Replaces each path by the result of `rename`, which must keep the order of the paths.
    pub(super) fn rename(&mut self, rename: impl Fn(Node) -> Node) {
        self.stacks.rename(rename);
    }

    /// Merges the `chosen` stacks of `class`.
    pub(super) fn merge_stacks(&mut self, class: EventClass, chosen: &mut SmallStacks) {
        let mut merged: BTreeMap<PathKey, PathUsage> = BTreeMap::new();
        let mut is_kept = |(key, totals): &(PathKey, PathUsage)| {
            let is_kept =
                key.end == StackEnd::Merged || !chosen.includes_next(class, Magnitude::of(class, &totals.usage));
            if !is_kept {
                let key = PathKey { path: Node::ROOT, end: StackEnd::Merged, part: key.part };
                let mut totals = totals.clone();
                totals.usage[Quantity::MergedStacks] = totals.usage[Quantity::MergedStacks].max(1);
                merged.entry(key).or_default().add(&totals);
            }
            is_kept
        };
        let kept = PathTotals::from_sorted(self.stacks.take().into_iter().filter(&mut is_kept));
        self.stacks.push(kept.merge(PathTotals::from_sorted(merged)));
    }

    /// Returns the magnitude of each stack that can be merged. [`Self::merge_parts`] must be called before.
    pub(super) fn magnitudes(&self, class: EventClass) -> impl Iterator<Item = Magnitude> {
        let stacks = self.stacks.iter().filter(|(key, _)| key.end != StackEnd::Merged);
        stacks.map(move |(_, totals)| Magnitude::of(class, &totals.usage))
    }

    /// Returns the size of the group: the sort key of groups of `class`.
    pub(super) const fn size(&self, class: EventClass) -> u64 {
        size(class, &self.usage.total)
    }

    /// Returns the totals by stack.
    pub(crate) fn into_stacks(mut self) -> PathTotals {
        self.stacks.take()
    }

    /// Returns the group as a process of the profile. `largest`: listed images of the group, the largest first.
    pub(crate) fn profile(&self, largest: Vec<EndedRun>) -> ProcessProfile {
        let most_frequent = self.ends.iter().max_by_key(|&(end, images)| (images, std::cmp::Reverse(end)));
        let (user, cgroup) = (self.key.user.clone(), self.key.cgroup.clone());
        ProcessProfile {
            group: Some(EndedGroup {
                runs: self.ends.values().sum(),
                ends: self.ends.clone(),
                // A group of a recording can have totals of members before the first of them has ended.
                first_start: if self.ends.is_empty() { Duration::ZERO } else { self.first_start },
                last_end: self.last_end,
                largest,
            }),
            exe: self.key.has_executable().then(|| self.exe.clone()).flatten(),
            ended: most_frequent.map(|(&end, _)| end),
            ended_after: Some(self.last_end),
            total: self.usage.total,
            unmatched_frees: self.usage.unmatched_frees,
            inherited_frees: self.inherited_frees,
            repeated_frees: self.usage.repeated_frees,
            unmatched_samples: self.usage.unmatched_samples,
            // The processes were demoted at different times.
            demotion: Demotion { at: Tick(0), ..self.usage.demotion },
            user,
            cgroup,
            traced: self.traced,
            stalls: StallStats::by_kind(self.usage.stalls.iter().map(|(key, stalls)| (key.work, stalls))),
            faults: self.faults,
            peak_rss: self.peak_rss,
            ..ProcessProfile::new(Pid(0), self.name())
        }
    }

    /// Returns the name that more than half of the images have, or else the name of the executable. The processes of an
    /// interpreter have the names of their scripts, and no single script represents the group.
    fn name(&self) -> Comm {
        if !self.key.has_executable() {
            return Comm::from("other programs");
        }
        let most_frequent = self.names.iter().max_by_key(|&(name, images)| (images, std::cmp::Reverse(name)));
        let majority = most_frequent.filter(|&(_, images)| 2 * images > self.ends.values().sum());
        let file_name = self.exe.as_deref().and_then(Path::file_name).map(|name| Comm::from(name.to_string_lossy()));
        let name = majority.map(|(name, _)| name.clone()).or(file_name).or_else(|| Some(most_frequent?.0.clone()));
        name.map(|name| process::shown_name(&name)).unwrap_or_default()
    }
}

/// Returns true if a key has a thread.
fn is_of_thread(key: PathKey) -> bool {
    key.part != key.part.without_thread()
}

/// Returns the totals by stack without data of a single process: threads, addresses outside of files, and bytes at
/// the process's peak.
fn common_stacks(stacks: &PathTotals, has_addresses: bool, paths: &mut CallPaths) -> PathTotals {
    let mut known = FxHashMap::default();
    let common = |(key, mut totals): (PathKey, PathUsage)| {
        let path = if has_addresses { paths.without_addresses(key.path, &mut known) } else { key.path };
        // The processes have their peaks at different times.
        totals.usage[Quantity::AtPeakBytes] = 0;
        (PathKey { path, part: key.part.without_thread(), ..key }, totals)
    };
    PathTotals::new(stacks.iter().map(common).collect())
}

/// Returns only the totals that can be added to the totals of other images.
fn without_own_values(usage: ImageUsage) -> ImageUsage {
    ImageUsage {
        total: usage.total,
        repeated_frees: usage.repeated_frees,
        unmatched_samples: usage.unmatched_samples,
        demotion: usage.demotion,
        stalls: usage.stalls,
        ..ImageUsage::default()
    }
}

/// Returns the sum of the known counts; `None` if no count is known.
fn sum(one: Option<PageFaults>, other: Option<PageFaults>) -> Option<PageFaults> {
    [one, other].into_iter().flatten().reduce(|sum, faults| PageFaults {
        minor: sum.minor.saturating_add(faults.minor),
        major: sum.major.saturating_add(faults.major),
    })
}
