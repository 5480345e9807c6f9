//! Process images that have ended. The largest images keep rows of their own; the others are added to groups. Pure.

mod class;
mod group;
mod group_key;
mod groups;
mod row;

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_model::{
    CodeNames, EventClass, ImageEnd, ImageId, ImageUsage, Object, ProcessImage, StackId, Stacks, Tick,
};
use rustc_hash::{FxBuildHasher, FxHashMap};

use self::class::EndedClass;
use self::row::Row;
use super::call_paths::{CallPaths, Walk};
use super::generated_names::GeneratedNames;
use super::live_paths::{ImageStacks, LivePaths};
use super::merged_images::MergedImages;
use super::path_totals::{PathKey, PathTotals, PathUsage};
use super::translated_paths::PathSource;

pub(super) use self::group_key::GroupKey;
pub(super) use self::row::ImageFacts;

/// Maximum number of groups in an event class.
const MAX_GROUPS: usize = 4096;

/// Minimum number of stacks for each group. The maximum number of groups is the limit of stacks divided by this
/// number.
const MIN_ENTRIES: usize = 8;

/// A process image that has ended, with its totals and stacks from all shards.
#[derive(Clone, Debug)]
pub struct CompletedImage {
    /// The image.
    pub id: ImageId,
    /// Kind of its end.
    pub end: ImageEnd,
    /// Time of its end.
    pub at: Tick,
    /// Names, owner and mappings.
    pub image: ProcessImage,
    /// Totals in each event class that lists the image.
    pub usage: Vec<(EventClass, ImageUsage)>,
    /// Frames of the image's stacks in all classes.
    pub stacks: Stacks,
}

/// An ended image after the conversion of its stacks to call paths.
struct ConvertedImage {
    image: ProcessImage,
    rows: Vec<(EventClass, Row)>,
    /// Indices of the objects that occur in the stacks.
    objects: Vec<u32>,
}

/// Limits of [`EndedProcesses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedSettings {
    /// Maximum number of ended images that an event class lists, as rows or as the largest images of groups.
    /// Further images only count in the sums of their groups.
    pub keep: usize,
    /// Maximum number of stacks of all ended images and groups. A stack of sampled blocks counts as four. A quarter is for
    /// images, the rest for groups.
    pub max_stack_entries: usize,
    /// Maximum number of distinct call paths of all ended images.
    pub max_call_paths: usize,
    /// Maximum size of all names of generated code, in bytes.
    pub max_name_bytes: usize,
    /// Start of tracing.
    pub start: Tick,
}

/// Totals of the process images that have ended.
///
/// An ended image has a row with its stacks. If there are more than [`EndedSettings::keep`] images or too many
/// stacks, the smallest images are added to groups of one executable, cgroup and user. If groups have too many
/// stacks, the smallest stacks are merged and counted. Totals are exact in all cases.
#[derive(Debug)]
pub struct EndedProcesses {
    settings: EndedSettings,
    classes: BTreeMap<EventClass, EndedClass>,
    paths: CallPaths,
    names: GeneratedNames,
    facts: HashSet<Arc<ImageFacts>, FxBuildHasher>,
}

/// Contents of an [`EndedProcesses`].
pub(super) struct EndedParts {
    pub(super) classes: BTreeMap<EventClass, EndedClass>,
    pub(super) paths: CallPaths,
    pub(super) names: GeneratedNames,
}

impl EndedProcesses {
    /// Returns an empty collection.
    #[must_use]
    pub fn new(settings: EndedSettings) -> Self {
        Self {
            settings,
            classes: BTreeMap::new(),
            paths: CallPaths::default(),
            names: GeneratedNames::new(settings.max_name_bytes),
            facts: HashSet::default(),
        }
    }

    /// Returns an empty collection for stacks with these paths. No path or stack is removed. `keep`: maximum number
    /// of listed images, as [`EndedSettings::keep`].
    pub(super) fn with_paths(paths: CallPaths, keep: usize, start: Tick) -> Self {
        let all = usize::MAX;
        let settings = EndedSettings { keep, max_stack_entries: all, max_call_paths: all, max_name_bytes: 0, start };
        Self { paths, ..Self::new(settings) }
    }

    /// Adds an image. `stacks`: totals of the image by path of this collection.
    pub(super) fn add_converted(
        &mut self,
        class: EventClass,
        id: ImageId,
        ended: (ImageEnd, Tick),
        image: &ProcessImage,
        usage: ImageUsage,
        stacks: PathTotals,
    ) {
        let facts = self.facts_of(image);
        let row = Row::new(id, ended, image, facts, usage, stacks).with_addresses(true);
        self.class(class).add(row);
        self.limit();
    }

    /// Adds an image without stacks to its group. [`Self::add_group`] adds the stacks.
    pub(super) fn add_member(
        &mut self,
        class: EventClass,
        id: ImageId,
        ended: (ImageEnd, Tick),
        image: &ProcessImage,
        usage: ImageUsage,
    ) {
        let facts = self.facts_of(image);
        let row = Row::new(id, ended, image, facts, usage, PathTotals::default());
        let start = self.settings.start;
        self.classes.entry(class).or_insert_with(|| EndedClass::new(class, start)).add_member(row, &mut self.paths);
        self.limit();
    }

    /// Adds `stacks` to the group of `image`. `merged`: members of the group that the recording has merged.
    /// `usage`: totals of the merged members, without stacks. [`Self::add_member`] adds the other members.
    pub(super) fn add_group(
        &mut self,
        class: EventClass,
        image: &ProcessImage,
        mut stacks: Vec<(PathKey, PathUsage)>,
        merged: MergedImages,
        usage: ImageUsage,
    ) {
        let mut known = FxHashMap::default();
        for (key, _) in &mut stacks {
            key.path = self.paths.without_addresses(key.path, &mut known);
        }
        let key = GroupKey::of(&ImageFacts::of(image));
        let start = self.settings.start;
        let groups = &mut self.class(class).groups;
        groups.add_stacks(key, PathTotals::new(stacks));
        groups.add_merged(image, merged, usage, start);
    }

    /// Adds an image. `code`: names of the image's generated code, which are read before this function returns.
    pub fn add(&mut self, completed: CompletedImage, code: &mut dyn CodeNames) {
        let ConvertedImage { rows, .. } = self.convert(completed, code);
        self.add_rows(rows);
    }

    /// Adds an image as [`Self::add`] does. Returns the image, and its heap totals by the call paths of `live`.
    /// These totals do not count the stacks that the ledger merged: [`ImageUsage::merged_stacks`] counts them.
    pub fn add_recorded(
        &mut self,
        completed: CompletedImage,
        code: &mut dyn CodeNames,
        live: &mut LivePaths,
    ) -> (ProcessImage, ImageStacks) {
        let blocks = completed.usage.iter().find(|(class, _)| *class == EventClass::Heap).map(|(_, usage)| usage);
        let has_merged = |usage: &&ImageUsage| usage.by_stack.keys().any(|key| key.stack == StackId::OTHER);
        let merged = blocks.filter(has_merged).map_or(0, |usage| usage.merged_stacks);
        let ConvertedImage { image, rows, objects } = self.convert(completed, code);
        let from = PathSource { paths: &self.paths, names: &self.names };
        let blocks = rows.iter().find(|(class, _)| *class == EventClass::Heap);
        let stacks = blocks.map(|(_, row)| live.translate(&row.stacks, from, &objects, merged)).unwrap_or_default();
        self.add_rows(rows);
        (image, stacks)
    }

    fn convert(&mut self, completed: CompletedImage, code: &mut dyn CodeNames) -> ConvertedImage {
        let CompletedImage { id, end, at, image, usage, stacks } = completed;
        let facts = self.facts_of(&image);
        let mut walk = Walk::new(&mut self.paths, &image, &stacks, code, &mut self.names);
        let mut rows = Vec::with_capacity(usage.len());
        for (class, mut usage) in usage {
            usage.end(end, class);
            let stacks = walk.totals(&mut usage, |_, _| {});
            rows.push((class, Row::new(id, (end, at), &image, Arc::clone(&facts), usage, stacks)));
        }
        let (has_addresses, objects) = (walk.has_addresses(), walk.objects());
        self.names.note(id, &image.comm, code);
        let rows = rows.into_iter().map(|(class, row)| (class, row.with_addresses(has_addresses))).collect();
        ConvertedImage { image, rows, objects }
    }

    fn add_rows(&mut self, rows: Vec<(EventClass, Row)>) {
        for (class, row) in rows {
            self.class(class).add(row);
        }
        self.limit();
    }

    fn class(&mut self, class: EventClass) -> &mut EndedClass {
        let start = self.settings.start;
        self.classes.entry(class).or_insert_with(|| EndedClass::new(class, start))
    }

    fn facts_of(&mut self, image: &ProcessImage) -> Arc<ImageFacts> {
        let facts = ImageFacts::of(image);
        if let Some(known) = self.facts.get(&facts) {
            return Arc::clone(known);
        }
        let rows: usize = self.classes.values().map(EndedClass::rows).sum();
        if self.facts.len() > 2 * rows {
            self.facts.retain(|facts| Arc::strong_count(facts) > 1);
        }
        let facts = Arc::new(facts);
        self.facts.insert(Arc::clone(&facts));
        facts
    }

    /// Restores all limits.
    fn limit(&mut self) {
        let EndedSettings { keep, max_stack_entries, max_call_paths, .. } = self.settings;
        let of_rows = max_stack_entries / 4;
        let of_groups = max_stack_entries - of_rows;
        for class in self.classes.values_mut() {
            class.limit_images(keep, &mut self.paths);
        }
        self.limit_row_entries(of_rows);
        for class in self.classes.values_mut() {
            class.limit_groups(MAX_GROUPS.min(of_groups / MIN_ENTRIES));
        }
        if self.paths.len() > max_call_paths {
            self.limit_paths(max_call_paths - max_call_paths / 4);
        }
        if self.group_entries() > of_groups {
            self.classes.values_mut().for_each(|class| class.groups.merge_parts());
            // Merges to a number below the limit, so that merges are rare.
            if self.group_entries() > of_groups - of_groups / 8 {
                self.limit_group_entries(of_groups - of_groups / 4);
            }
        }
    }

    fn limit_row_entries(&mut self, most: usize) {
        while self.row_entries() > most
            && let Some(largest) = self.classes.values_mut().max_by_key(|class| class.row_entries())
        {
            largest.move_smallest(&mut self.paths);
        }
    }

    /// Merges stacks of groups until at most about `most` entries remain.
    fn limit_group_entries(&mut self, most: usize) {
        let all = self.group_entries();
        if all > most {
            for class in self.classes.values_mut() {
                class.merge_stacks(|stacks| stacks * most / all);
            }
        }
    }

    /// Reduces the number of call paths to at most `most`. First, the paths without a stack are removed. Then the
    /// smallest rows move to their groups, and the smallest stacks of groups are merged. Each pass handles only a
    /// quarter of the rows and of the stacks, so that few more are merged than necessary.
    fn limit_paths(&mut self, most: usize) {
        self.remove_unused_paths();
        while self.paths.len() > most {
            let rows = self.row_entries();
            self.limit_row_entries(rows - rows.div_ceil(4));
            let mut has_merged = false;
            for class in self.classes.values_mut() {
                has_merged |= class.merge_stacks(|stacks| stacks - stacks.div_ceil(4));
            }
            if !has_merged && rows == 0 {
                break;
            }
            self.remove_unused_paths();
        }
    }

    fn remove_unused_paths(&mut self) {
        let used: Vec<_> = self.classes.values().flat_map(EndedClass::paths).collect();
        let paths = self.paths.retain(used, &mut self.names);
        self.classes.values_mut().for_each(|class| class.rename(&paths));
    }

    fn row_entries(&self) -> usize {
        self.classes.values().map(EndedClass::row_entries).sum()
    }

    fn group_entries(&self) -> usize {
        self.classes.values().map(|class| class.groups.entries()).sum()
    }

    /// Returns this collection, and leaves an empty one with the same settings.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let empty = Self::new(self.settings);
        std::mem::replace(self, empty)
    }

    /// Returns the objects of all stacks, each once. This collection holds one [`Arc`] reference to each object.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.paths.objects()
    }

    /// Removes the handles of closed files from the objects.
    pub fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.paths.forget_files(closed);
    }

    /// Returns the images, the groups, and the call paths that their stacks use.
    pub(super) fn into_parts(mut self) -> EndedParts {
        self.remove_unused_paths();
        self.into_parts_with_all_paths()
    }

    /// Returns the images, the groups and all call paths.
    pub(super) fn into_parts_with_all_paths(self) -> EndedParts {
        EndedParts { classes: self.classes, paths: self.paths, names: self.names }
    }
}

#[cfg(test)]
mod tests;
