//! Recording of a run: the changes of each interval, with stacks as call paths.

mod account_intervals;
mod changes;
mod completion;
mod deferral;
mod groups;
mod images;
mod intervals;
mod killed_cgroups;
mod live_changes;
mod marks;
mod memory_sampler;
mod old_blocks;
mod readings;
mod run_book;
mod sites;
mod stacks;
mod waiting_activity;

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use memtrace_history::pipeline::{DeltaSink, WaitingStacks};
use memtrace_history::{Fact, ImageChange, ImageValue, Interval, facts};
use memtrace_history::{ImageStacks, LivePaths};
use memtrace_model::{
    Delta, EndedImage, EventClass, ImageEnd, ImageId, ImageUsage, Losses, Object, PageFaults, ProcessImage, StackId,
    StackKey, Stacks, Tick, UnsentStacks,
};

use self::account_intervals::AccountIntervals;
use self::changes::PathChanges;
use self::deferral::Deferral;
use self::groups::GroupedImages;
use self::images::RecordedImages;
use self::intervals::OpenIntervals;
use self::marks::Marks;
use self::old_blocks::OldBlocks;
use self::readings::IntervalReadings;
use self::run_book::RunBook;
use self::sites::LiveSites;
use self::stacks::RecordedStacks;
use self::waiting_activity::WaitingActivity;
use super::account_interval::AccountInterval;
use super::activity_changes::RecordedChanges;
use super::memory::MemoryPlan;
use super::stack_copies::FindCopy;
use crate::run_kit::error::Error;
use crate::run_kit::marks::{MarkRequest, StoredMark};
use crate::targets::track::{ProcessTracker, generated_code};
use crate::trace::config::Config;

pub(in crate::trace) use self::killed_cgroups::killed_cgroups;
pub(in crate::trace) use self::run_book::header_of_run;
pub(super) use self::sites::{ClassSites, Site, SiteTotals};

/// Maximum number of waiting deltas of each shard. Further deltas stay in the shard.
const WAITING: usize = 4;

/// Bytes of a history's size limit for each call path. The row of a path takes about 20 bytes.
const BYTES_PER_PATH: u64 = 64;

/// Recorder of the changes of a run: it adds them to the history, and to the sums of the top sites.
pub(super) struct Recorder {
    book: RunBook,
    uses: Uses,
    /// Top sites; `None` if no sites are shown during the run.
    sites: Option<LiveSites>,
    /// Readings at the ends of intervals; `None` if no values are read.
    readings: Option<IntervalReadings>,
    deltas: Receiver<(usize, Delta)>,
    open: OpenIntervals,
    waiting: Waiting,
    stacks: RecordedStacks,
    changes: PathChanges,
    of_images: OfImages,
    next: Next,
}

/// Uses of the history.
struct Uses {
    /// True if a recording or another output shows moments before the end. Then the history needs names and facts.
    is_viewed: bool,
    /// True if an output shows memory over time.
    has_timeline: bool,
    /// True if the history serves the trends of running images only.
    is_of_trends: bool,
    /// True if a mark starts new water marks of accounts.
    has_resets: bool,
}

/// Data that waits until its interval is recorded.
#[derive(Default)]
struct Waiting {
    accounts: AccountIntervals,
    activity: WaitingActivity,
    marks: Marks,
}

/// Recorded images, and the data of ended images.
struct OfImages {
    known: RecordedImages,
    old_blocks: OldBlocks,
    deferral: Deferral,
    groups: GroupedImages,
}

/// Data of the next interval that belongs to no delta.
#[derive(Default)]
struct Next {
    /// Start of the next interval: the end of the last one.
    start: Duration,
    /// Changes that belong to no delta: if an image has unsent stacks, the changes replace the sum of these stacks by the
    /// stacks themselves. If a report leaves out the totals of an ended image, the changes remove them.
    late: Vec<(EventClass, ImageId, ImageUsage)>,
    /// Losses outside of the ledgers at the end of the last interval.
    losses_before: Losses,
    facts: Vec<Fact>,
    /// Values of images that belong to no delta. A value of zero lists an image without events.
    image_changes: Vec<ImageChange>,
}

impl Recorder {
    /// Creates the recorder, and the sink for the deltas of `shards` shards. Returns `None` if no deltas are needed.
    /// `clock_start`: origin of ticks. `plan` limits the number of call paths.
    pub(super) fn create(
        config: &Config,
        shards: usize,
        clock_start: Instant,
        plan: &MemoryPlan,
    ) -> Result<Option<(Self, DeltaSink)>, Error> {
        let recording = config.recording.as_ref();
        let of_accounts = config.accounts.as_ref().filter(|accounts| accounts.is_over_time());
        let of_accounts = of_accounts.map(|accounts| accounts.interval);
        let interval = recording
            .map(|recording| recording.interval)
            .or(of_accounts)
            .or(config.timeline)
            .or(config.every)
            .or(config.trend_interval());
        let Some(interval) = interval else { return Ok(None) };
        let max_paths = plan.history_limit(config).map(|limit| limit.0 / BYTES_PER_PATH);
        let max_paths = max_paths.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        let Some(limits) = plan.recorder else { return Ok(None) };
        let paths = LivePaths::new(limits.call_paths.min(max_paths), plan.generated_names.0 as usize);
        let (sender, deltas) = mpsc::sync_channel(WAITING * shards);
        let waiting = WaitingStacks::new(shards, limits.waiting_stacks / shards.max(1));
        let recorder = Self {
            readings: (recording.is_some() || config.timeline.is_some()).then(|| IntervalReadings::new(interval)),
            book: RunBook::create(config, interval, &limits, clock_start)?,
            uses: Uses {
                is_viewed: config.views_moments(),
                has_timeline: config.timeline.is_some(),
                is_of_trends: config.trend_interval().is_some(),
                has_resets: config.accounts.is_some(),
            },
            sites: config.every.map(|_| LiveSites::default()),
            deltas,
            open: OpenIntervals::new(interval, waiting.clone(), shards),
            waiting: Waiting::default(),
            stacks: RecordedStacks::new(paths),
            changes: PathChanges::default(),
            of_images: OfImages {
                known: RecordedImages::default(),
                old_blocks: OldBlocks::new(config.blocks.older.is_some()),
                deferral: Deferral::new(config, limits.call_paths),
                groups: GroupedImages::new(limits.grouped_stacks),
            },
            next: Next::default(),
        };
        Ok(Some((recorder, DeltaSink { interval, start: clock_start, sender, waiting })))
    }

    /// Records the intervals that ended up to `settled`. `settled`: a time before `now`; all mmap events up to
    /// `settled` are applied. `losses`: losses outside of the ledgers so far.
    pub(super) fn record(
        &mut self,
        now: Tick,
        settled: Tick,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
        losses: &Losses,
    ) {
        if let Some(readings) = &mut self.readings {
            let images = tracker.images();
            let running =
                self.of_images.known.running().filter_map(|id| Some((id, images.get(&id)?.cgroup.as_deref())));
            readings.update(now.since_start(), running, &self.book.status());
        }
        self.receive();
        // The accounts of an interval are recorded with its delta, so the delta waits for them.
        let settled = self.waiting.accounts.known_until(settled);
        while let Some(delta) = self.open.take_complete(settled) {
            self.write(delta, tracker, find_copy, losses);
        }
    }

    /// Converts the stacks of an image that leaves the tracker at `now`. All shards have ended the image, but its last
    /// changes can arrive later.
    pub(super) fn end_image(
        &mut self,
        ended: &EndedImage,
        now: Tick,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
    ) {
        let id = ended.id;
        if ended.unsent == UnsentStacks::All {
            // Otherwise, `group_image` records the end.
            if self.uses.is_of_trends {
                self.of_images.known.end(id, (ended.end, ended.at), now, tracker.images().get(&id), None);
            }
            return;
        }
        self.of_images.deferral.add_ended();
        self.next.late.extend(ended.unsent_change().map(|change| (EventClass::Heap, id, change)));
        let generated = generated_code::of_image(tracker, id);
        if let Some(image) = tracker.images().get(&id) {
            self.stacks.add_unknown(id, image, &ended.stacks, generated.as_ref());
        }
        let used = ended.usage.iter().flat_map(|(_, usage)| usage.by_stack.keys());
        let copies = used.filter(|key| self.stacks.find(key.stack).is_none()).map(|key| (id, key.stack)).collect();
        self.add_copies(copies, tracker, find_copy);
        self.of_images.known.end(id, (ended.end, ended.at), now, tracker.images().get(&id), None);
        self.of_images.old_blocks.add_ended(ended);
    }

    /// Returns true if stacks of ended images that no delta has are recorded by group. A history for trends only has no
    /// ended images.
    pub(super) const fn groups_images(&self) -> bool {
        !self.uses.is_of_trends
    }

    /// Adds the stacks of an image to its group. No delta has any of these stacks. Their paths are
    /// in [`Self::live_paths`].
    pub(super) fn group_image(
        &mut self,
        id: ImageId,
        ended: (ImageEnd, Tick),
        now: Tick,
        image: &ProcessImage,
        stacks: ImageStacks,
    ) {
        let group = self.of_images.groups.add(image, stacks);
        self.of_images.known.end(id, ended, now, Some(image), Some(group));
    }

    /// Returns the call paths, so that the paths of ended images can be added.
    pub(super) const fn live_paths(&mut self) -> &mut LivePaths {
        self.stacks.live_mut()
    }

    /// Returns the minimum age of an image with stacks of its own in the recording. Returns `Some` only once: when the recorder
    /// starts to defer the stacks of new images.
    pub(super) fn take_deferral(&mut self) -> Option<Duration> {
        self.of_images.deferral.take()
    }

    /// Lists an image in the reports of `classes`, although it has no totals there.
    pub(super) fn list_idle(&mut self, id: ImageId, classes: impl IntoIterator<Item = EventClass>) {
        self.next.image_changes.extend(classes.into_iter().map(|class| listed(id, class)));
    }

    /// Removes the totals of an image, because the report of their class leaves out the image.
    pub(super) fn remove_totals(&mut self, id: ImageId, class: EventClass, usage: &ImageUsage) {
        let change = changes::removal(usage);
        if change != ImageUsage::default() {
            self.next.late.push((class, id, change));
        }
    }

    /// Adds the page faults of an image that has ended. Its last delta lacks the faults, because the count at the start
    /// of the image was not known then.
    pub(super) fn add_faults(&mut self, id: ImageId, faults: PageFaults) {
        self.next.image_changes.extend(changes::fault_values(id, EventClass::Fault, faults));
    }

    /// Records the start of tracing, and facts of the run.
    pub(super) fn start(&mut self, start: Tick, facts: impl IntoIterator<Item = Fact>) {
        self.waiting.marks.set_start(start.since_start());
        self.waiting.activity.set_start(start.since_start());
        self.add_facts(facts);
    }

    /// Records facts of the run with the next interval.
    pub(super) fn add_facts(&mut self, facts: impl IntoIterator<Item = Fact>) {
        self.next.facts.extend(facts);
    }

    /// Records the remaining changes. `left`: deltas that the shards did not send. `unsent`: stacks of ended images
    /// that no delta contains, and the changes by these stacks.
    pub(super) fn record_rest(
        &mut self,
        left: Vec<(usize, Delta)>,
        unsent: Vec<(Stacks, ImageId, ImageUsage)>,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
        losses: &Losses,
    ) {
        self.receive();
        left.into_iter().for_each(|(shard, delta)| self.open.add(shard, delta));
        for (stacks, id, change) in unsent {
            self.add_stacks(id, &stacks, tracker);
            self.next.late.push((EventClass::Heap, id, change));
        }
        while let Some(delta) = self.open.take_first() {
            self.write(delta, tracker, find_copy, losses);
        }
        let mut interval = self.last_interval();
        self.of_images.groups.move_to(&mut interval, true);
        self.waiting.activity.move_to(&mut interval, Duration::MAX);
        self.stacks.add_new_paths(&mut interval);
        self.push(interval);
        let losses = losses.since(&self.next.losses_before);
        if losses.total() > 0 {
            let interval = Interval { losses, ..self.last_interval() };
            self.push(interval);
        }
    }

    /// Adds accounts that have changed in the intervals up to `until`. They are recorded with the delta that ends at
    /// the same time or later.
    pub(super) fn add_accounts(&mut self, intervals: Vec<AccountInterval>, until: Tick) {
        self.waiting.accounts.add(intervals, until);
    }

    /// Adds the deltas that have arrived.
    fn receive(&mut self) {
        while let Ok((shard, delta)) = self.deltas.try_recv() {
            self.open.add(shard, delta);
        }
    }

    /// Returns the call paths of the recorded stacks.
    pub(super) const fn paths(&self) -> &LivePaths {
        self.stacks.live()
    }

    /// Returns the objects of the recorded stacks, each with one reference.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.stacks.objects()
    }

    /// Forgets the handles of files that were closed.
    pub(super) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.stacks.forget_files(closed);
    }

    /// Returns true if a recording or another output shows moments before the end. Then names and facts are kept.
    pub(super) const fn is_viewed(&self) -> bool {
        self.uses.is_viewed
    }

    /// Returns true if a recording or an output shows marks.
    pub(super) const fn keeps_marks(&self) -> bool {
        self.uses.is_viewed || self.uses.has_timeline
    }

    /// Adds activity of threads. The mmap events up to now are applied.
    pub(super) fn add_activity(
        &mut self,
        new: RecordedChanges,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
    ) {
        let RecordedChanges { mut changes, frames, calls } = new;
        for (id, stacks) in frames {
            let generated = generated_code::of_image(tracker, id);
            if let Some(image) = tracker.images().get(&id) {
                self.stacks.add_unknown(id, image, &stacks, generated.as_ref());
            }
        }
        self.waiting.activity.without_frames.append(&mut changes.stacks);
        let without = std::mem::take(&mut self.waiting.activity.without_frames);
        let unknown = without.iter().filter(|(.., id)| self.stacks.find(*id).is_none());
        let copies = unknown.map(|&(_, pid, id)| (tracker.latest_id(pid), id)).collect();
        self.add_copies(copies, tracker, find_copy);
        for (number, pid, id) in without {
            match self.stacks.find(id) {
                Some((path, end)) => self.waiting.activity.stacks.push((number, path, end)),
                None => self.waiting.activity.without_frames.push((number, pid, id)),
            }
        }
        self.waiting.activity.changes.append(changes);
        for (name, sums) in calls {
            *self.waiting.activity.calls.entry(name).or_default() += &sums;
        }
    }

    /// Returns the `top` largest sites of each event class.
    pub(super) fn top_sites(&self, top: usize) -> Vec<ClassSites> {
        let sites = self.sites.as_ref();
        sites.map(|sites| sites.largest(top, |path| self.stacks.calls(path))).unwrap_or_default()
    }

    /// Adds a mark. The shards must end their deltas at the mark. Returns false if the mark is
    /// refused.
    pub(super) fn add_mark(&mut self, request: MarkRequest) -> bool {
        self.waiting.marks.add(request)
    }

    /// Answers the requests of marks that have been stored since the last call, and returns these marks for the user.
    pub(super) fn take_stored_marks(&mut self) -> Vec<StoredMark> {
        if !self.waiting.marks.has_unstored() {
            return Vec::new();
        }
        let stored = self.waiting.marks.take_stored(&self.book.status());
        // A reset of accounts has a note of its own.
        if self.uses.has_resets && !self.book.is_file() { Vec::new() } else { stored }
    }

    fn write(&mut self, mut delta: Delta, tracker: &mut ProcessTracker, find_copy: &FindCopy<'_>, losses: &Losses) {
        for (class, id, change) in self.next.late.drain(..) {
            delta.add_usage(class, id, change);
        }
        for (id, stacks) in std::mem::take(&mut delta.stacks) {
            self.add_stacks(id, &stacks, tracker);
        }
        let unknown = delta.usage.values().flatten().flat_map(|(&id, usage)| {
            let unknown = usage.by_stack.keys().filter(|key| self.stacks.find(key.stack).is_none());
            unknown.map(move |key| (id, key.stack))
        });
        let unknown = unknown.chain(self.changes.unknown_stacks()).collect();
        self.add_copies(unknown, tracker, find_copy);
        if self.of_images.deferral.has_begun() {
            // The sum of deferred stacks has the key of merged stacks.
            let sum = StackKey::from(StackId::OTHER);
            let images = delta.usage.get(&EventClass::Heap).into_iter().flatten();
            let late = images.filter(|(_, usage)| usage.by_stack.contains_key(&sum));
            self.of_images.known.add_late(late.map(|(&id, _)| id));
        }
        let (until, is_marked) = (delta.until, delta.is_marked);
        // Two boundaries never have the same time.
        let end = until.since_start().max(self.next.start + Duration::from_nanos(1));
        let mut interval = Interval {
            span: self.next.start..end,
            oom_kills: delta.oom_kills.into_iter().collect(),
            ..Interval::default()
        };
        self.next.start = end;
        interval.losses = losses.since(&self.next.losses_before);
        interval.losses.merge(&delta.losses);
        self.next.losses_before = losses.clone();
        interval.facts = std::mem::take(&mut self.next.facts);
        if self.uses.is_viewed {
            // A service manager can remove the cgroup of a killed service before the end of the run.
            interval.facts.extend(facts::of_killed_cgroups(&killed_cgroups(&interval.oom_kills)));
        }
        interval.image_changes = std::mem::take(&mut self.next.image_changes);
        let changed = delta.usage.values().flat_map(|images| images.keys().copied());
        let changed: BTreeSet<ImageId> =
            changed.chain(interval.image_changes.iter().map(|change| change.image)).collect();
        interval.images = self.of_images.known.describe(changed, &delta.ends, until, tracker.images());
        self.changes.add(delta.usage, &self.stacks, &mut interval);
        self.of_images.groups.move_to(&mut interval, is_marked);
        self.waiting.activity.move_to(&mut interval, end);
        self.stacks.add_new_paths(&mut interval);
        if is_marked {
            self.waiting.marks.end_interval(&mut interval);
        }
        interval.finished = self.of_images.known.take_old(self.open.taken_until(), tracker.images());
        for &id in &interval.finished {
            interval.details.extend(self.of_images.old_blocks.take(id, &self.stacks));
            self.stacks.forget(id);
            self.changes.forget(id);
        }
        self.waiting.accounts.move_to(until, &mut interval);
        if let Some(sites) = &mut self.sites {
            sites.add(&interval);
        }
        if let Some(readings) = &mut self.readings {
            readings.move_to(&mut interval);
        }
        self.push(interval);
    }

    fn add_stacks(&mut self, id: ImageId, stacks: &Stacks, tracker: &mut ProcessTracker) {
        if stacks.is_empty() {
            return;
        }
        self.of_images.deferral.add_stacks(stacks.ids().count());
        let generated = generated_code::of_image(tracker, id);
        // If the image has left the tracker, its stacks are known already.
        if let Some(image) = tracker.images().get(&id) {
            self.stacks.add(id, image, stacks, generated.as_ref());
        }
    }

    /// Adds stacks that user space has finished.
    fn add_copies(
        &mut self,
        unknown: BTreeSet<(ImageId, StackId)>,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
    ) {
        for (id, copy) in unknown {
            match find_copy(id.pid, copy) {
                Some((finished, Some(stack))) => {
                    self.add_stacks(id, &Stacks::from([(copy, stack)]), tracker);
                    // Snapshots have the ID of the finished stack instead of the ID of the copy, so the path is known
                    // by both IDs.
                    if self.stacks.find(finished).is_none() {
                        self.stacks.add_alias(id, finished, copy);
                    }
                }
                Some((stack, None)) => self.stacks.add_alias(id, copy, stack),
                None => {}
            }
        }
    }
}

/// Returns a change by zero. It makes reports list the image.
const fn listed(image: ImageId, class: EventClass) -> ImageChange {
    ImageChange { image, class, kind: ImageValue::UnmatchedFrees, index: 0, value: 0 }
}
