//! Images that have ended during a run: completed with mappings, owner and rusage, and added to the ended processes.

use std::collections::{BTreeMap, HashSet};
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use memtrace_history::pipeline::{EndedParts, EndedSink, Shards, missing_frames};
use memtrace_history::{CompletedImage, EndedProcesses, EndedSettings};
use memtrace_host::kernel::ProcessFilter;
use memtrace_model::{
    EndedImage, EventClass, ImageEnd, ImageId, ImageStart, ImageUsage, LossReason, Object, Pid, Snapshots, Stacks,
    Tick, UnsentStacks,
};
use memtrace_object::symbolize::ImageCode;

use super::accounts::RunAccounts;
use super::recorder::Recorder;
use super::stack_copies::find_copy;
use crate::targets::select::Selection;
use crate::targets::track::{Coverage, ProcessTracker, generated_code};
use crate::targets::unwind_tables::UnwindTables;
use crate::trace::sample::PageReader;

/// Batches of parts that the shards can send before they keep them.
const BATCHES: usize = 256;

/// Time after its end at which an image is completed. Its mmap events have arrived by then: they are in other buffers than
/// the record of its end.
pub(super) const SETTLED: Duration = Duration::from_millis(200);

/// Time that a part or an mmap event may take.
const OVERDUE: Duration = Duration::from_secs(5);

/// Time between two looks for overdue parts.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Time that stacks may take that are finished in user space: until the tables of all objects of a new program are built.
const STACKS_OVERDUE: Duration = Duration::from_secs(30);

/// Images that have ended during a run.
pub(super) struct EndedImages {
    parts: Receiver<(usize, Vec<EndedImage>)>,
    assembly: EndedParts,
    processes: EndedProcesses,
    coverage: Coverage,
    /// Number of events without the frames of their stacks, by event class.
    frames_lost: BTreeMap<EventClass, u64>,
    /// Time of the next look for overdue parts.
    next_question: Tick,
    /// Images that the shards were asked to end, with the time of the question.
    asked: BTreeMap<ImageId, Tick>,
    /// Processes in scope that have exited since [`Self::take_exits`].
    exits: Vec<Pid>,
}

/// Parts of a run that complete an image.
pub(super) struct Completion<'run> {
    pub(super) tracker: &'run mut ProcessTracker,
    pub(super) tables: &'run mut UnwindTables,
    pub(super) pages: Option<&'run PageReader>,
    pub(super) filter: &'run ProcessFilter,
    pub(super) classes: &'run [EventClass],
    pub(super) start: Tick,
    pub(super) recorder: Option<&'run mut Recorder>,
    pub(super) accounts: Option<&'run mut RunAccounts>,
}

/// Returns the channel from the shards.
pub(super) fn channel() -> (EndedSink, Receiver<(usize, Vec<EndedImage>)>) {
    mpsc::sync_channel(BATCHES)
}

impl EndedImages {
    /// Returns the empty collection, which receives the parts of `shards` shards.
    pub(super) fn new(parts: Receiver<(usize, Vec<EndedImage>)>, shards: usize, settings: EndedSettings) -> Self {
        Self {
            parts,
            assembly: EndedParts::new(shards),
            processes: EndedProcesses::new(settings),
            coverage: Coverage::default(),
            frames_lost: BTreeMap::new(),
            next_question: Tick::default(),
            asked: BTreeMap::new(),
            exits: Vec::new(),
        }
    }

    /// Completes the images that have ended some time before `now`, and asks `shards` for overdue parts. All mmap events
    /// up to `now` must be applied.
    pub(super) fn complete(&mut self, now: Tick, shards: &Shards, run: &mut Completion<'_>) {
        self.receive();
        let (settled, overdue) = (earlier(now, SETTLED), earlier(now, OVERDUE));
        let stacks_overdue = earlier(now, STACKS_OVERDUE);
        let images = self.assembly.take_complete(|image| {
            let has_ended = image.at < overdue || image.at < settled && !run.tracker.awaits_end(image.id);
            // Ticks end after 52 days.
            now == Tick(u32::MAX) || has_ended && (image.at < stacks_overdue || run.tables.completes(image))
        });
        run.tracker.set_owners(images.iter().filter_map(|image| Some((image.id, image.owner?))).collect());
        if !images.is_empty() {
            let selection = Selection::of(run.filter);
            for image in images {
                self.asked.remove(&image.id);
                self.add(image, now, run, &selection);
            }
        }
        if self.next_question <= now {
            self.next_question = Tick::at(now.since_start() + ASK_EVERY);
            self.ask(now, shards, run);
        }
    }

    /// Returns the processes in scope that have exited and were completed since the last call.
    pub(super) fn take_exits(&mut self) -> Vec<Pid> {
        mem::take(&mut self.exits)
    }

    /// Returns the objects in the stacks of the ended processes, each with one reference.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.processes.objects()
    }

    /// Forgets the handles of files that were closed.
    pub(super) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.processes.forget_files(closed);
    }

    /// Adds the parts that have arrived.
    fn receive(&mut self) {
        while let Ok((_, parts)) = self.parts.try_recv() {
            self.assembly.add(parts);
        }
    }

    /// Adds an image to the ended processes at `now`.
    fn add(&mut self, mut ended: EndedImage, now: Tick, run: &mut Completion<'_>, selection: &Selection<'_>) {
        let EndedImage { id, end, at, .. } = ended;
        if let Some(recorder) = &mut run.recorder {
            recorder.end_image(&ended, now, run.tracker, &find_copy(run.tables.finished_stacks()));
        }
        run.tables.apply_to_ended(&mut ended);
        if let Some(pages) = run.pages {
            let began = run.tracker.images().get(&id).map_or(ImageStart::Unseen, |image| image.start);
            let mut added = None;
            let mut complete = |usage: &mut ImageUsage| {
                let was_known = usage.counts.faults().is_some();
                let is_reported = pages.complete_ended(usage, id, began, run.start);
                added = usage.counts.faults().filter(|_| !was_known && is_reported);
                is_reported
            };
            ended.usage.retain_mut(|(class, usage)| *class != EventClass::Fault || complete(usage));
            if let (Some(recorder), Some(faults)) = (&mut run.recorder, added) {
                recorder.add_faults(id, faults);
            }
        }
        if let Some(recorder) = &mut run.recorder {
            let has_no_totals = |usage: &ImageUsage| usage.total.is_zero() && usage.by_stack.is_empty();
            let without_totals = ended.usage.iter().filter(|(_, usage)| has_no_totals(usage));
            recorder.list_idle(id, without_totals.map(|(class, _)| *class));
        }
        let recorded: Vec<_> = ended.usage.iter().map(|(class, _)| *class).collect();
        let late = run.tracker.take_late(id);
        let is_in_scope = !recorded.is_empty() || run.tracker.is_traced(id.pid) && selection.contains(run.tracker, id);
        if is_in_scope {
            self.coverage.add_late(late);
        }
        if end != ImageEnd::Exec && is_in_scope {
            self.exits.push(id.pid);
            let idle = self.coverage.add_ended(run.tracker, id, &recorded, run.classes);
            if let Some(recorder) = &mut run.recorder {
                recorder.list_idle(id, idle.iter().copied());
            }
            let usage = ImageUsage { ended: Some(end), ..ImageUsage::default() };
            ended.usage.extend(idle.into_iter().map(|class| (class, usage.clone())));
        }
        let generated = generated_code::take(run.tracker, id, end);
        // The shard has sent the accounts before the image.
        if let Some(accounts) = &mut run.accounts {
            accounts.receive(run.tracker);
        }
        let image = run.tracker.take_ended(id, end, at).unwrap_or_default();
        if let Some(accounts) = &mut run.accounts {
            accounts.complete(id, end, &image, run.tracker);
        }
        run.tables.remember_objects(&image);
        for (class, usage) in &ended.usage {
            *self.frames_lost.entry(*class).or_default() += missing_frames(usage, &ended.stacks);
        }
        if !ended.usage.is_empty() {
            let has_group = ended.unsent == UnsentStacks::All && ended.heap().is_some();
            let EndedImage { usage, stacks, .. } = ended;
            let generated = generated.as_ref().map(|code| &code.files);
            let completed = CompletedImage { id, end, at, image, usage, stacks };
            let mut code = ImageCode::new(&completed.image, generated);
            match &mut run.recorder {
                Some(recorder) if has_group => {
                    let (image, stacks) = self.processes.add_recorded(completed, &mut code, recorder.live_paths());
                    recorder.group_image(id, (end, at), now, &image, stacks);
                }
                Some(_) | None => self.processes.add(completed, &mut code),
            }
        }
    }

    /// Asks the shards to end the images of which the record of the end was lost. An image that no shard knows leaves the
    /// registry without a report.
    fn ask(&mut self, now: Tick, shards: &Shards, run: &mut Completion<'_>) {
        let overdue = earlier(now, OVERDUE);
        let missing = self.assembly.incomplete(overdue).chain(run.tracker.ended_before(overdue));
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
                    let late = run.tracker.take_late(id);
                    if late > 0 && Selection::of(run.filter).contains(run.tracker, id) {
                        self.coverage.add_late(late);
                    }
                    let image = run.tracker.take_ended(id, end, at);
                    if let Some(accounts) = &mut run.accounts {
                        accounts.complete(id, end, &image.unwrap_or_default(), run.tracker);
                    }
                }
                Some(_) => {}
            }
        }
        if !new.is_empty() {
            shards.end_images(new);
        }
    }

    /// Returns the ended processes and their coverage, and adds the images that were not completed to `snapshots`, together
    /// with `left`, the parts that the shards have kept. Returns the stacks of these images that no delta has, too.
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

/// Returns the time `before` the tick `now`.
pub(super) fn earlier(now: Tick, before: Duration) -> Tick {
    Tick::at(now.since_start().saturating_sub(before))
}
