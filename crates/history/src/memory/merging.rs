//! Merges that keep a history in memory within its limit. A file has the same merges, in the same order.
//!
//! - Consecutive old intervals become one: the totals at the boundaries between them are lost.
//! - Small ended images become one image for each executable, user and control group. Sums over all images stay
//!   exact.
//! - The smaller half of the stacks becomes one stack for each image, event class and part. Sums of each image stay
//!   exact.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    Cgroup, Comm, EventClass, ImageEnd, ImageId, ImageStart, Magnitude, Magnitudes, Quantities, Quantity, StackEnd,
    StallStats, Tick, User,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::MemoryBook;
use crate::boundaries::IntervalRow;
use crate::interval::{
    Change, Detail, FactValue, ImageChange, ImageValue, Interval, PathNumber, RecordedImage, StallChange, Subject,
    TotalKey,
};
use crate::merge_smallest::{FEWEST, ImageSizes, Smallest, small_images};
use crate::merged_images::MergedImages;
use crate::retention::{StoredInterval as Row, forced_merge, next_merge};

/// Maximum number of groups. The last one, `other programs`, contains all further images.
const MAX_GROUPS: usize = 4096;

/// First ordinal of groups that a merge creates. Groups of the recorder have lower ordinals.
const FIRST_ORDINAL: u32 = 1 << 31;

impl MemoryBook {
    /// Merges some ended images, stacks or intervals. Returns false if there is nothing to merge.
    pub(super) fn merge(&mut self) -> bool {
        let quarter = (self.limit.0 / 4) as usize;
        // The data of an ended image takes the same space in an interval of any length, so a merge of intervals would
        // free little.
        if self.images.bytes() > quarter && self.merge_images() {
            return true;
        }
        let rows = self.stored_rows();
        let old = next_merge(&rows);
        let stacks = self.contents.first().map_or(0, |content| content.changes.bytes());
        // If the changes of the oldest interval take more than a quarter of the limit, stacks are merged before young
        // intervals.
        if old.is_none() && stacks > quarter && self.merge_stacks() {
            return true;
        }
        match old.or_else(|| forced_merge(&rows)) {
            Some(run) => {
                self.merge_intervals(run);
                true
            }
            None => self.merge_stacks() || self.merge_images(),
        }
    }

    fn stored_rows(&self) -> Vec<Row> {
        let marks: FxHashSet<i64> = self.marks.iter().filter(|row| row.is_exact).map(|row| row.boundary.id).collect();
        let row = |row: &IntervalRow| Row {
            id: row.end().id,
            span: row.span.clone(),
            merged: row.merged,
            is_marked: marks.contains(&row.end().id),
        };
        self.rows.iter().map(row).collect()
    }

    /// Merges all intervals that are old enough in a history of any size.
    #[cfg(test)]
    pub fn merge_old_intervals(&mut self) {
        while let Some(run) = next_merge(&self.stored_rows()) {
            self.merge_intervals(run);
        }
    }

    /// Merges consecutive intervals into the last of them.
    pub(super) fn merge_intervals(&mut self, run: Range<usize>) {
        let Range { start, end } = run;
        let last = end - 1;
        let first_id = self.rows[start].end().id;
        self.rows[last].span.start = self.rows[start].span.start;
        self.rows[last].merged = self.rows[start..end].iter().map(|row| row.merged).sum();
        let boundary = self.rows[last].end();
        for mark in self.marks.iter_mut().filter(|mark| (first_id..=boundary.id).contains(&mark.boundary.id)) {
            mark.boundary = boundary;
        }
        self.rows.drain(start..last);
        let merged = self.contents.drain(start..end).reduce(|mut sum, next| {
            sum.append(next);
            sum
        });
        self.contents.splice(start..start, merged);
    }

    /// Merges the smaller half of the stacks. Returns false if there are too few.
    pub(super) fn merge_stacks(&mut self) -> bool {
        let mut sums: BTreeMap<TotalKey, Magnitude> = BTreeMap::new();
        let mut all = Magnitudes::default();
        for (key, change) in self.contents.iter().flat_map(|content| content.changes.iter()) {
            if key.path != PathNumber::ROOT {
                let magnitude = Magnitude::of(key.class, &change.usage);
                sums.entry(key).or_default().add(magnitude);
                all.add(key.class, magnitude);
            }
        }
        let mut smallest = Smallest::new(all);
        sums.iter().for_each(|(key, magnitude)| smallest.count(key.class, *magnitude));
        if smallest.counted() / 2 < FEWEST {
            return false;
        }
        let mut chosen = smallest.choose(sums.len() / 2);
        let merged = sums.into_iter().filter(|(key, magnitude)| chosen.includes_next(key.class, *magnitude));
        let merged: FxHashSet<TotalKey> = merged.map(|(key, _)| key).collect();
        let target = |key: TotalKey| TotalKey { path: PathNumber::ROOT, end: StackEnd::Merged, ..key };
        let mut counts: BTreeMap<TotalKey, u64> = BTreeMap::new();
        merged.iter().for_each(|key| *counts.entry(target(*key)).or_default() += 1);
        self.rename(|key| if merged.contains(&key) { target(key) } else { key });
        if let Some(first) = self.contents.first_mut() {
            let count = |(key, count)| Change { key, usage: Quantities::ZERO.with(Quantity::MergedStacks, count) };
            first.change(|interval| interval.changes.extend(counts.into_iter().map(count)));
        }
        true
    }

    /// Gives each stack in each interval the key that `rename` returns. Stacks with equal keys are added up.
    fn rename(&mut self, rename: impl Fn(TotalKey) -> TotalKey) {
        let rename_all = |interval: &mut Interval| {
            interval.changes.iter_mut().for_each(|change| change.key = rename(change.key));
            let mut sums: BTreeMap<_, u64> = BTreeMap::new();
            for detail in interval.details.drain(..) {
                let sum = sums.entry((rename(detail.key), detail.kind, detail.index)).or_default();
                *sum = sum.wrapping_add(detail.value);
            }
            let detail = |((key, kind, index), value)| Detail { key, kind, index, value };
            interval.details = sums.into_iter().filter(|(_, value)| *value != 0).map(detail).collect();
        };
        self.contents.iter_mut().for_each(|content| content.change(rename_all));
    }

    /// Merges the older half of the ended images, except for the largest of them. Returns false if there are too
    /// few.
    pub(crate) fn merge_images(&mut self) -> bool {
        let old = self.old_images();
        if old.is_empty() {
            return false;
        }
        let mut known = self.known_groups();
        let groups: FxHashMap<ImageId, ImageId> =
            old.into_iter().map(|id| (id, self.group_of(id, &mut known))).collect();
        self.name_groups(&groups);
        self.count_merged(&groups);
        let group = |id: ImageId| groups.get(&id).copied();
        self.rename(|key| match group(key.image) {
            Some(image) => TotalKey { image, part: key.part.without_thread(), ..key },
            None => key,
        });
        for content in &mut self.contents {
            let rest = &mut content.rest;
            merge_values(&mut rest.image_changes, &group);
            merge_stalls(&mut rest.stalls, &group);
            rest.samples.retain(|sample| !matches!(sample.subject, Subject::Process(id) if groups.contains_key(&id)));
        }
        for id in groups.keys() {
            self.images.all.remove(id);
            self.images.finished.remove(id);
        }
        true
    }

    /// Returns the images to merge. The set is empty if there are too few.
    fn old_images(&self) -> BTreeSet<ImageId> {
        let known = |id: &ImageId| Some((self.images.all.get(id)?.image.ended?, *id));
        let ended = self.images.finished.iter().filter_map(known);
        let mut ended: Vec<_> = ended.map(|((end, at), id)| (at, id, end == ImageEnd::OomKill)).collect();
        ended.sort_unstable_by_key(|&(at, id, _)| (at, id));
        ended.truncate(ended.len() / 2);
        if ended.len() < FEWEST {
            return BTreeSet::new();
        }
        let size =
            |&(_, id, is_killed): &(Tick, ImageId, bool)| (id, ImageSizes { is_killed, ..ImageSizes::default() });
        let mut sizes: BTreeMap<ImageId, ImageSizes> = ended.iter().map(size).collect();
        for content in &self.contents {
            for (key, change) in content.changes.iter() {
                if let Some(size) = sizes.get_mut(&key.image) {
                    size.exit = size.exit.wrapping_add(change.usage.exit().bytes.0);
                    size.alloc = size.alloc.wrapping_add(change.usage.alloc().bytes.0);
                }
            }
            for stall in &content.rest.stalls {
                if let Some(size) = sizes.get_mut(&stall.image) {
                    size.stalls = size.stalls.wrapping_add(stall.stats.stalls.time.0);
                }
            }
        }
        small_images(&sizes.into_iter().collect::<Vec<_>>())
    }

    /// Returns the group of an ended image, and creates it if necessary. `known`: groups that merges have created.
    fn group_of(&mut self, id: ImageId, known: &mut KnownGroups) -> ImageId {
        let Some(image) = self.images.all.get(&id) else { return id };
        let since = image.since;
        if let Some(group) = image.image.member_of {
            return group;
        }
        let key = group_key(&image.image);
        if let Some(group) = known.get(&key) {
            return *group;
        }
        let number = known.len().min(MAX_GROUPS - 1);
        let group = ImageId::of_group(FIRST_ORDINAL + number as u32);
        let image = &mut self.images.note(group, since).image;
        if number + 1 == MAX_GROUPS {
            image.comm = Comm::from("other programs");
        } else {
            (image.exe, image.comm, image.user, image.cgroup) = key.clone();
            known.insert(key, group);
        }
        group
    }

    fn known_groups(&self) -> KnownGroups {
        let created = ImageId::of_group(FIRST_ORDINAL)..=ImageId::of_group(u32::MAX);
        let groups =
            self.images.all.range(created).filter(|(id, _)| id.ordinal < FIRST_ORDINAL + MAX_GROUPS as u32 - 1);
        groups.map(|(id, known)| (group_key(&known.image), *id)).collect()
    }

    /// Sets the name of each group with an executable to the name that more than half of its members have. Without a
    /// majority, the name is empty. Members of earlier merges count with the name of the group.
    fn name_groups(&mut self, groups: &FxHashMap<ImageId, ImageId>) {
        let mut members: BTreeMap<ImageId, (BTreeMap<Comm, u64>, i64)> = BTreeMap::new();
        for (id, group) in groups {
            if let Some(known) = self.images.all.get(id) {
                let (names, since) = members.entry(*group).or_insert_with(|| (BTreeMap::new(), known.since));
                *names.entry(known.image.comm.clone()).or_default() += 1;
                *since = known.since.min(*since);
            }
        }
        let mut earlier: BTreeMap<(ImageId, EventClass), u64> = BTreeMap::new();
        for (key, images) in self.contents.iter().flat_map(|content| &content.merged) {
            *earlier.entry(*key).or_default() += images.ends.values().sum::<u64>();
        }
        for (group, (mut names, since)) in members {
            let Some(known) = self.images.all.get_mut(&group) else { continue };
            known.since = since.min(known.since);
            if known.image.exe.is_none() {
                continue;
            }
            let of_classes = EventClass::ALL.iter().filter_map(|class| earlier.get(&(group, *class)));
            if let Some(images) = of_classes.max() {
                *names.entry(known.image.comm.clone()).or_default() += images;
            }
            let all: u64 = names.values().sum();
            let most = names.into_iter().find(|(_, images)| 2 * images > all);
            known.image.comm = most.map(|(name, _)| name).unwrap_or_default();
        }
    }

    /// Counts each image of `groups` at the first boundary that is not before its end or its first interval, in
    /// each event class with changes.
    fn count_merged(&mut self, groups: &FxHashMap<ImageId, ImageId>) {
        let mut frees: BTreeMap<(ImageId, EventClass), u64> = BTreeMap::new();
        for content in &self.contents {
            for (key, _) in content.changes.iter().filter(|(key, _)| groups.contains_key(&key.image)) {
                frees.entry((key.image, key.class)).or_default();
            }
            for detail in content.rest.details.iter().filter(|detail| groups.contains_key(&detail.key.image)) {
                frees.entry((detail.key.image, detail.key.class)).or_default();
            }
            for change in content.rest.image_changes.iter().filter(|change| groups.contains_key(&change.image)) {
                let of_image = frees.entry((change.image, change.class)).or_default();
                if change.kind == ImageValue::UnmatchedFrees {
                    *of_image = of_image.wrapping_add(change.value);
                }
            }
            for stall in content.rest.stalls.iter().filter(|stall| groups.contains_key(&stall.image)) {
                frees.entry((stall.image, EventClass::Reclaim)).or_default();
            }
        }
        let trace_start = self.trace_start();
        for ((id, class), frees) in frees {
            let (Some(known), Some(group)) = (self.images.all.get(&id), groups.get(&id)) else { continue };
            let Some((end, at)) = known.image.ended else { continue };
            let at_end = at.since_start();
            // The IDs and the ends of intervals ascend.
            let first = self.rows.partition_point(|row| row.end().id < known.since);
            let counted = self.rows.partition_point(|row| row.end().id < known.since || row.span.end < at_end);
            let counted = if counted < self.rows.len() { counted } else { first };
            let Some(content) = self.contents.get_mut(counted) else { continue };
            let start = known.image.start.tick().unwrap_or_default();
            let is_inherited = matches!(known.image.start, ImageStart::Fork(at) if at.since_start() >= trace_start);
            content.merged.entry((*group, class)).or_default().merge(&MergedImages {
                ends: [(end, 1)].into(),
                traced: at_end.saturating_sub(start.since_start().max(trace_start)),
                inherited_frees: if is_inherited { frees } else { 0 },
                first_start: start,
                last_end: at,
            });
        }
    }

    fn trace_start(&self) -> Duration {
        let facts = self.contents.iter().flat_map(|content| &content.rest.facts);
        let start = facts.rev().find(|fact| fact.topic == "run" && fact.item == "start_ns");
        match start.map(|fact| &fact.value) {
            Some(FactValue::Number(start)) => Duration::from_nanos(*start),
            Some(FactValue::Text(_)) | None => Duration::ZERO,
        }
    }
}

/// Groups that merges have created, by executable, name, user and control group.
type KnownGroups = FxHashMap<GroupKey, ImageId>;

type GroupKey = (Option<PathBuf>, Comm, Option<User>, Option<Arc<Cgroup>>);

/// Returns the key of the group of an image. The name is part of the key only if the executable is unknown.
fn group_key(image: &RecordedImage) -> GroupKey {
    let comm = if image.exe.is_none() { image.comm.clone() } else { Comm::default() };
    (image.exe.clone(), comm, image.user.clone(), image.cgroup.clone())
}

/// Moves the values of merged images to their groups. Values that groups do not have are dropped.
fn merge_values(changes: &mut Vec<ImageChange>, group: &impl Fn(ImageId) -> Option<ImageId>) {
    let (moved, mut kept): (Vec<_>, Vec<_>) =
        std::mem::take(changes).into_iter().partition(|change| group(change.image).is_some());
    let key = |change: &ImageChange| (change.image, change.class, change.kind, change.index);
    let mut places: FxHashMap<_, usize> = kept.iter().enumerate().map(|(place, change)| (key(change), place)).collect();
    for mut change in moved.into_iter().filter(|change| change.kind.is_of_groups()) {
        change.image = group(change.image).unwrap_or(change.image);
        match places.get(&key(&change)) {
            Some(&place) => kept[place].value = change.kind.add(kept[place].value, change.value),
            None => {
                places.insert(key(&change), kept.len());
                kept.push(change);
            }
        }
    }
    *changes = kept;
}

/// Moves the stalls of merged images to their groups.
fn merge_stalls(stalls: &mut Vec<StallChange>, group: &impl Fn(ImageId) -> Option<ImageId>) {
    if stalls.iter().all(|stall| group(stall.image).is_none()) {
        return;
    }
    let mut sums: BTreeMap<_, StallStats> = BTreeMap::new();
    for StallChange { image, key, stats } in std::mem::take(stalls) {
        sums.entry((group(image).unwrap_or(image), key)).or_default().merge(&stats);
    }
    stalls.extend(sums.into_iter().map(|((image, key), stats)| StallChange { image, key, stats }));
}
