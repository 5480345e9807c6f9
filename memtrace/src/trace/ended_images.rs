//! Images that have ended during a run: completed with mappings, owner and rusage, and added to the ended processes.

use std::collections::{BTreeMap, HashSet};
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memtrace_history::pipeline::{EndedParts, EndedReceiver, EndedSink, ended_channel, missing_frames};
use memtrace_history::{CompletedImage, EndedProcesses, EndedSettings};
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{
    EndedImage, EventClass, ImageEnd, ImageId, ImageUsage, LossReason, Object, Snapshots, Stacks, Tick, UnsentStacks,
};
use memtrace_object::symbolize::ImageCode;

use super::context::Context;
use super::part::LeftImage;
use super::parts::Parts;
use super::recorder::Recorder;
use super::stack_copies::find_copy;
use crate::targets::select::Selection;
use crate::targets::track::{Coverage, generated_code};

/// Number of batches that the channel holds. A batch contains parts of ended images. A part is the totals of an image in one
/// shard. If the channel is full, the shards keep their parts.
const BATCHES: usize = 256;

/// Delay from the end of an image to its completion. The mmap events of the image are in other buffers than the record
/// of its end. After this delay, all of them have arrived.
pub(super) const SETTLED: Duration = Duration::from_millis(200);

/// A missing part or mmap event is overdue this time after the end of its image.
const OVERDUE: Duration = Duration::from_secs(5);

/// Interval of the checks for overdue parts, and minimum age of an overdue part. A ring whose first record is reserved and not
/// submitted looks empty: the thread that writes this record can be preempted for a while. If the image ended meanwhile, the
/// record of its end would end the next image of the pid.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Stacks that user space finishes are overdue this time after the end of their image. By then, the unwind tables of all
/// objects of a new executable are built.
const STACKS_OVERDUE: Duration = Duration::from_secs(30);

/// Images that have ended during a run.
pub(super) struct EndedImages {
    parts: EndedReceiver,
    assembly: EndedParts,
    /// Maximum of [`EndedParts::stack_count`]. Beyond it, images wait only for parts, for [`SETTLED`], and until the copies of
    /// their stacks were read.
    max_waiting: usize,
    processes: EndedProcesses,
    coverage: Coverage,
    /// Number of events without the frames of their stacks, by event class.
    frames_lost: BTreeMap<EventClass, u64>,
    /// Time of the next check for overdue parts.
    next_question: Tick,
    /// Images that the shards were asked to end, with the time of the request.
    asked: BTreeMap<ImageId, Tick>,
}

/// Returns the channel for parts from the shards. `max_waiting`: maximum number of totals and stacks in the channel.
pub(super) fn channel(max_waiting: usize) -> (EndedSink, EndedReceiver) {
    ended_channel(BATCHES, max_waiting)
}

impl EndedImages {
    /// Returns an empty collection, which receives parts from `shards` shards. `max_waiting`: maximum number of totals and
    /// stacks of images that wait for missing data.
    pub(super) fn new(parts: EndedReceiver, shards: usize, max_waiting: usize, settings: EndedSettings) -> Self {
        Self {
            parts,
            assembly: EndedParts::new(shards),
            max_waiting,
            processes: EndedProcesses::new(settings),
            coverage: Coverage::default(),
            frames_lost: BTreeMap::new(),
            next_question: Tick::default(),
            asked: BTreeMap::new(),
        }
    }

    /// Completes the images that ended at least [`SETTLED`] before `now`, and asks the shards for overdue parts. All
    /// mmap events up to `now` must be applied.
    pub(super) fn complete(&mut self, now: Tick, context: &mut Context, parts: &mut Parts) {
        self.receive();
        let settled = earlier(now, SETTLED);
        let is_beyond_limit = self.is_beyond_limit();
        let overdue = earlier(now, if is_beyond_limit { SETTLED } else { OVERDUE });
        let stacks_overdue = earlier(now, if is_beyond_limit { OVERDUE } else { STACKS_OVERDUE });
        // Stacks whose copies were read are cut beyond the limit. The frames of the others would be lost.
        let is_cut = is_beyond_limit && context.tables.has_read_copies(SETTLED);
        let images = self.assembly.take_complete(|image| {
            let has_ended = image.at < overdue || image.at < settled && !context.tracker.awaits_end(image.id);
            // The largest tick is reached after 52 days; from then on, ages are unknown.
            now == Tick(u32::MAX)
                || has_ended && (is_cut || image.at < stacks_overdue || context.tables.completes(image, SETTLED))
        });
        context.tracker.set_owners(images.iter().filter_map(|image| Some((image.id, image.owner?))).collect());
        if !images.is_empty() {
            let filter = context.filter.clone();
            let selection = Selection::of(&filter);
            for image in images {
                self.asked.remove(&image.id);
                self.add(image, now, context, parts, &selection);
            }
        }
        if self.next_question <= now {
            self.next_question = Tick::at(now.since_start() + ASK_EVERY);
            self.ask(now, context, parts);
        }
        if let Some(age) = context.recorder.as_mut().and_then(Recorder::take_deferral) {
            context.shards.defer_stacks(age);
        }
    }

    /// Returns true if too many stacks wait: images then wait less for missing data.
    const fn is_beyond_limit(&self) -> bool {
        self.assembly.stack_count() > self.max_waiting
    }

    /// Returns the objects in the stacks of the ended processes, each with one reference.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.processes.objects()
    }

    /// Forgets the handles of files that were closed.
    pub(super) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.processes.forget_files(closed);
    }

    /// Receives the parts that have arrived.
    fn receive(&mut self) {
        self.parts.arrived().for_each(|(_, parts)| self.assembly.add(parts));
    }

    /// Adds an image to the ended processes. `now`: time of the addition.
    fn add(
        &mut self,
        mut ended: EndedImage,
        now: Tick,
        context: &mut Context,
        parts: &mut Parts,
        selection: &Selection<'_>,
    ) {
        let EndedImage { id, end, at, .. } = ended;
        let Context { recorder, tracker, tables, .. } = context;
        if let Some(recorder) = recorder {
            recorder.end_image(&ended, now, tracker, &find_copy(tables.finished_stacks()));
        }
        tables.apply_to_ended(&mut ended);
        parts.image_ended(&mut ended, context);
        let Context { recorder, tracker, tables, .. } = context;
        if let Some(recorder) = recorder {
            let has_no_totals = |usage: &ImageUsage| usage.total.is_zero() && usage.by_stack.is_empty();
            let without_totals = ended.usage.iter().filter(|(_, usage)| has_no_totals(usage));
            recorder.list_idle(id, without_totals.map(|(class, _)| *class));
        }
        let recorded: Vec<_> = ended.usage.iter().map(|(class, _)| *class).collect();
        let late = tracker.take_late(id);
        let is_in_scope = !recorded.is_empty() || tracker.is_traced(id.pid) && selection.contains(tracker, id);
        if is_in_scope {
            self.coverage.add_late(late);
        }
        let is_listed_exit = is_in_scope && end != ImageEnd::Exec;
        if is_listed_exit {
            let idle = self.coverage.add_ended(tracker, id, &recorded, &context.classes);
            if let Some(recorder) = recorder {
                recorder.list_idle(id, idle.iter().copied());
            }
            let usage = ImageUsage { ended: Some(end), ..ImageUsage::default() };
            ended.usage.extend(idle.into_iter().map(|class| (class, usage.clone())));
        }
        let generated = generated_code::take(tracker, id, end);
        let image = tracker.take_ended(id, end, at).unwrap_or_default();
        tables.remember_objects(&image);
        parts.image_left(&LeftImage { id, end, image: &image, is_listed_exit }, context);
        for (class, usage) in &ended.usage {
            *self.frames_lost.entry(*class).or_default() += missing_frames(usage, &ended.stacks);
        }
        if !ended.usage.is_empty() {
            let has_group = ended.unsent == UnsentStacks::All && ended.heap().is_some();
            let EndedImage { usage, stacks, .. } = ended;
            let generated = generated.as_ref().map(|code| &code.files);
            let completed = CompletedImage { id, end, at, image, usage, stacks };
            let mut code = ImageCode::new(&completed.image, generated, &TargetFiles);
            match &mut context.recorder {
                Some(recorder) if has_group && recorder.groups_images() => {
                    let (image, stacks) = self.processes.add_recorded(completed, &mut code, recorder.live_paths());
                    recorder.group_image(id, (end, at), now, &image, stacks);
                }
                Some(_) | None => self.processes.add(completed, &mut code),
            }
        }
    }

    /// Asks the shards to end the images that lack the record of their end. An image that no shard knows leaves the registry
    /// without a report. An image with memory that other processes share stays until these processes end.
    fn ask(&mut self, now: Tick, context: &mut Context, parts: &mut Parts) {
        let overdue = earlier(now, OVERDUE);
        for id in context.shards.take_kept() {
            self.asked.remove(&id);
        }
        let parts_overdue = earlier(now, if self.is_beyond_limit() { ASK_EVERY } else { OVERDUE });
        let missing = self.assembly.incomplete(parts_overdue).chain(context.tracker.ended_before(overdue));
        let missing: BTreeMap<_, _> = missing.map(|(id, end, at)| (id, (end, at))).collect();
        let mut new = Vec::new();
        for (id, (end, at)) in missing {
            match self.asked.get(&id) {
                _ if self.assembly.is_complete(id) => {}
                None => {
                    self.asked.insert(id, now);
                    new.push((id, end, at));
                }
                Some(&asked) if asked < overdue && !self.assembly.has_part(id) => {
                    self.asked.remove(&id);
                    let Context { tracker, filter, .. } = context;
                    let late = tracker.take_late(id);
                    if late > 0 && Selection::of(filter).contains(tracker, id) {
                        self.coverage.add_late(late);
                    }
                    let image = tracker.take_ended(id, end, at).unwrap_or_default();
                    parts.image_left(&LeftImage { id, end, image: &image, is_listed_exit: false }, context);
                }
                Some(_) => {}
            }
        }
        if !new.is_empty() {
            context.shards.end_images(new, now);
        }
    }

    /// Returns the ended processes, their coverage, and the stacks that no delta contains. Adds the images that were
    /// not completed to `snapshots`. `left`: parts that the shards have kept.
    pub(super) fn finish(
        &mut self,
        left: Vec<(usize, Vec<EndedImage>)>,
        snapshots: &mut Snapshots,
    ) -> (EndedProcesses, Coverage, Vec<(Stacks, ImageId, ImageUsage)>) {
        self.receive();
        left.into_iter().for_each(|(_, parts)| self.assembly.add(parts));
        for (class, snapshot) in &mut snapshots.0 {
            snapshot.losses.add(LossReason::StackFramesLost, self.frames_lost.get(class).copied().unwrap_or(0));
        }
        let mut unsent = Vec::new();
        for ended in self.assembly.finish() {
            unsent.extend(ended.unsent_change().map(|change| (ended.stacks.clone(), ended.id, change)));
            ended.add_to(snapshots);
        }
        (self.processes.take(), mem::take(&mut self.coverage), unsent)
    }
}

/// Subtracts the duration `before` from `now`.
pub(super) fn earlier(now: Tick, before: Duration) -> Tick {
    Tick::at(now.since_start().saturating_sub(before))
}
