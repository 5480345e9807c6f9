//! Recording of a run: the changes of each interval, with stacks as call paths.

mod account_intervals;
mod changes;
mod completion;
mod deferral;
mod groups;
mod images;
mod intervals;
mod live_changes;
mod marks;
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
use memtrace_history::{Fact, ImageChange, ImageValue, Interval};
use memtrace_history::{ImageStacks, LivePaths};
use memtrace_model::{
    Delta, EndedImage, EventClass, ImageEnd, ImageId, ImageUsage, Losses, Object, PageFaults, ProcessImage, StackId,
    Stacks, Tick, UnsentStacks,
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

pub(in crate::trace) use self::run_book::header_of_run;
pub(super) use self::sites::{ClassSites, Site, SiteTotals};

/// Deltas of each shard that can wait. If there are more, they stay in the shard.
const WAITING: usize = 4;

/// A history of this many bytes has one call path at most. The row of a path takes about 20 bytes.
const BYTES_PER_PATH: u64 = 64;

/// Records a run, or adds up its changes for the top sites.
pub(super) struct Recorder {
    book: RunBook,
    /// Something shows other moments than the end: the history needs names and facts.
    is_viewed: bool,
    /// An output shows memory over time.
    has_timeline: bool,
    /// `None` if no sites are shown during the run.
    sites: Option<LiveSites>,
    /// `None` if no values are read at the ends of intervals.
    readings: Option<IntervalReadings>,
    deltas: Receiver<(usize, Delta)>,
    accounts: AccountIntervals,
    activity: WaitingActivity,
    open: OpenIntervals,
    stacks: RecordedStacks,
    changes: PathChanges,
    images: RecordedImages,
    old_blocks: OldBlocks,
    deferral: Deferral,
    groups: GroupedImages,
    /// Changes that belong to no delta, for the next interval: stacks that replace their sum.
    late: Vec<(ImageId, ImageUsage)>,
    marks: Marks,
    /// Losses outside of the ledgers at the last interval.
    losses: Losses,
    /// End of the last interval.
    end: Duration,
    /// Facts for the next interval.
    facts: Vec<Fact>,
    /// Values of images that belong to no delta, for the next interval: those of images without events are zero.
    image_changes: Vec<ImageChange>,
}

impl Recorder {
    /// Creates the recording, if there is one, and the receiver of the deltas of `shards` shards. Ticks began at
    /// `clock_start`. `plan` limits the number of call paths. Returns `None` if no deltas are needed.
    pub(super) fn create(
        config: &Config,
        shards: usize,
        clock_start: Instant,
        plan: &MemoryPlan,
    ) -> Result<Option<(Self, DeltaSink)>, Error> {
        let recording = config.recording.as_ref();
        let of_accounts = config.accounts.as_ref().filter(|accounts| accounts.is_over_time());
        let of_accounts = of_accounts.map(|accounts| accounts.interval);
        let interval =
            recording.map(|recording| recording.interval).or(of_accounts).or(config.timeline).or(config.every);
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
            is_viewed: config.views_moments(),
            has_timeline: config.timeline.is_some(),
            sites: config.every.map(|_| LiveSites::default()),
            deltas,
            accounts: AccountIntervals::default(),
            activity: WaitingActivity::default(),
            open: OpenIntervals::new(interval, waiting.clone(), shards),
            stacks: RecordedStacks::new(paths),
            changes: PathChanges::default(),
            images: RecordedImages::default(),
            old_blocks: OldBlocks::new(config.older.is_some()),
            deferral: Deferral::new(config),
            groups: GroupedImages::new(limits.grouped_stacks),
            late: Vec::new(),
            marks: Marks::default(),
            losses: Losses::default(),
            end: Duration::ZERO,
            facts: Vec::new(),
            image_changes: Vec::new(),
        };
        Ok(Some((recorder, DeltaSink { interval, start: clock_start, sender, waiting })))
    }

    /// Records the intervals that ended before `settled`, some time before `now`. All mmap events up to then are applied.
    /// `losses` are those outside of the ledgers.
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
            let running = self.images.running().filter_map(|id| Some((id, images.get(&id)?.cgroup.as_deref())));
            readings.update(now.since_start(), running, &self.book.status());
        }
        self.receive();
        while let Some(delta) = self.open.take_complete(settled) {
            self.write(delta, tracker, find_copy, losses);
        }
    }

    /// Converts the stacks of an image that leaves the tracker at `now`. All shards have ended it. Its last changes can
    /// arrive later.
    pub(super) fn end_image(
        &mut self,
        ended: &EndedImage,
        now: Tick,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
    ) {
        if ended.unsent == UnsentStacks::All {
            return;
        }
        let id = ended.id;
        self.deferral.add_ended();
        self.late.extend(ended.unsent_change().map(|change| (id, change)));
        let generated = generated_code::of_image(tracker, id);
        if let Some(image) = tracker.images().get(&id) {
            self.stacks.add_unknown(id, image, &ended.stacks, generated.as_ref());
        }
        let used = ended.usage.iter().flat_map(|(_, usage)| usage.by_stack.keys());
        let copies = used.filter(|key| self.stacks.find(key.stack).is_none()).map(|key| (id, key.stack)).collect();
        self.add_copies(copies, tracker, find_copy);
        self.images.end(id, (ended.end, ended.at), now, tracker.images().get(&id), None);
        self.old_blocks.add_ended(ended);
    }

    /// Adds the stacks of an image, of which no delta has one, to its group. They are live paths.
    pub(super) fn group_image(
        &mut self,
        id: ImageId,
        ended: (ImageEnd, Tick),
        now: Tick,
        image: &ProcessImage,
        stacks: ImageStacks,
    ) {
        let group = self.groups.add(image, stacks);
        self.images.end(id, ended, now, Some(image), Some(group));
    }

    /// Returns the call paths, to add those of ended images.
    pub(super) const fn live_paths(&mut self) -> &mut LivePaths {
        self.stacks.live_mut()
    }

    /// Returns the age at which images have their own stacks, once: from now on, those of new images can be deferred.
    pub(super) fn take_deferral(&mut self) -> Option<Duration> {
        self.deferral.take()
    }

    /// Lists an image without totals of `classes`.
    pub(super) fn list_idle(&mut self, id: ImageId, classes: impl IntoIterator<Item = EventClass>) {
        self.image_changes.extend(classes.into_iter().map(|class| listed(id, class)));
    }

    /// Adds the page faults of an image that has ended, of which its last delta does not know the number at its start.
    pub(super) fn add_faults(&mut self, id: ImageId, faults: PageFaults) {
        self.image_changes.extend(changes::fault_values(id, EventClass::Fault, faults));
    }

    /// Records the start of tracing, and facts of the run.
    pub(super) fn start(&mut self, start: Tick, facts: impl IntoIterator<Item = Fact>) {
        self.marks.set_start(start.since_start());
        self.activity.set_start(start.since_start());
        self.add_facts(facts);
    }

    /// Records facts of the run with the next interval.
    pub(super) fn add_facts(&mut self, facts: impl IntoIterator<Item = Fact>) {
        self.facts.extend(facts);
    }

    /// Records the remaining changes, of which `left` were not sent.
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
            self.late.push((id, change));
        }
        while let Some(delta) = self.open.take_first() {
            self.write(delta, tracker, find_copy, losses);
        }
        let mut interval = self.last_interval();
        self.groups.move_to(&mut interval, true);
        self.activity.move_to(&mut interval, Duration::MAX);
        self.stacks.add_new_paths(&mut interval);
        self.push(interval);
        let losses = losses.since(&self.losses);
        if losses.total() > 0 {
            let interval = Interval { losses, ..self.last_interval() };
            self.push(interval);
        }
    }

    /// Adds accounts that have changed in intervals. They are recorded with the delta that ends then, or later.
    pub(super) fn add_accounts(&mut self, intervals: Vec<AccountInterval>) {
        self.accounts.add(intervals);
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

    /// Returns true if something shows other moments than the end, and everything of them is kept.
    pub(super) const fn is_viewed(&self) -> bool {
        self.is_viewed
    }

    /// Returns true if a recording or an output shows marks.
    pub(super) const fn keeps_marks(&self) -> bool {
        self.is_viewed || self.has_timeline
    }

    /// Returns true if the run has a recording.
    pub(super) const fn has_file(&self) -> bool {
        self.book.is_file()
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
        self.activity.without_frames.append(&mut changes.stacks);
        let without = std::mem::take(&mut self.activity.without_frames);
        let unknown = without.iter().filter(|(.., id)| self.stacks.find(*id).is_none());
        let copies = unknown.map(|&(_, pid, id)| (tracker.latest_id(pid), id)).collect();
        self.add_copies(copies, tracker, find_copy);
        for (number, pid, id) in without {
            match self.stacks.find(id) {
                Some((path, end)) => self.activity.stacks.push((number, path, end)),
                None => self.activity.without_frames.push((number, pid, id)),
            }
        }
        self.activity.changes.append(changes);
        for (name, sums) in calls {
            *self.activity.calls.entry(name).or_default() += &sums;
        }
    }

    /// Returns the `top` largest sites of each event class.
    pub(super) fn top_sites(&self, top: usize) -> Vec<ClassSites> {
        let sites = self.sites.as_ref();
        sites.map(|sites| sites.largest(top, |path| self.stacks.calls(path))).unwrap_or_default()
    }

    /// Adds a mark, at which the shards have to end their deltas. Returns false if it is refused.
    pub(super) fn add_mark(&mut self, request: MarkRequest) -> bool {
        self.marks.add(request)
    }

    /// Answers the requests of marks that have been stored since the last call, and returns these marks.
    pub(super) fn take_stored_marks(&mut self) -> Vec<StoredMark> {
        if !self.marks.has_unstored() {
            return Vec::new();
        }
        self.marks.take_stored(&self.book.status())
    }

    fn write(&mut self, mut delta: Delta, tracker: &mut ProcessTracker, find_copy: &FindCopy<'_>, losses: &Losses) {
        for (id, change) in self.late.drain(..) {
            delta.add_usage(EventClass::Heap, id, change);
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
        let (until, is_marked) = (delta.until, delta.is_marked);
        // No two boundaries have the same time.
        let end = until.since_start().max(self.end + Duration::from_nanos(1));
        let mut interval =
            Interval { span: self.end..end, oom_kills: delta.oom_kills.into_iter().collect(), ..Interval::default() };
        self.end = end;
        interval.losses = losses.since(&self.losses);
        interval.losses.merge(&delta.losses);
        self.losses = losses.clone();
        interval.facts = std::mem::take(&mut self.facts);
        interval.image_changes = std::mem::take(&mut self.image_changes);
        let changed = delta.usage.values().flat_map(|images| images.keys().copied());
        let changed: BTreeSet<ImageId> =
            changed.chain(interval.image_changes.iter().map(|change| change.image)).collect();
        interval.images = self.images.describe(changed, &delta.ends, until, tracker.images());
        self.changes.add(delta.usage, &self.stacks, &mut interval);
        self.groups.move_to(&mut interval, is_marked);
        self.activity.move_to(&mut interval, end);
        self.stacks.add_new_paths(&mut interval);
        if is_marked {
            self.marks.end_interval(&mut interval);
        }
        interval.finished = self.images.take_old(self.open.taken_until(), tracker.images());
        for &id in &interval.finished {
            interval.details.extend(self.old_blocks.take(id, &self.stacks));
            self.stacks.forget(id);
            self.changes.forget(id);
        }
        self.accounts.move_to(until, &mut interval);
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
        self.deferral.add_stacks(stacks.ids().count());
        let generated = generated_code::of_image(tracker, id);
        // The stacks of an image that has left the tracker are known.
        if let Some(image) = tracker.images().get(&id) {
            self.stacks.add(id, image, stacks, generated.as_ref());
        }
    }

    /// Adds the stacks that were finished in user space.
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
                    // Snapshots have this ID.
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

/// Returns a change of zero, by which reports list an image.
const fn listed(image: ImageId, class: EventClass) -> ImageChange {
    ImageChange { image, class, kind: ImageValue::UnmatchedFrees, index: 0, value: 0 }
}
