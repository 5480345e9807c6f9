//! A monitor in progress: probes, sampler, intervals and outputs.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use memtrace_history::threads::IntervalBuilder;
use memtrace_history::triggers::{TriggerLosses, Triggers};
use memtrace_model::format::counted;
use memtrace_model::{CounterSource, Pid, SourceState, ThreadsEvent, ThreadsEventKind, ThreadsInterval};
use tokio::sync::Notify;

use super::attachment::Attachment;
use super::cgroup_readings::CgroupReadings;
use super::config::ThreadsConfig;
use super::marks::Marks;
use super::outputs::Outputs;
use super::process_readings::ProcessReadings;
use super::process_selection::ProcessSelection;
use super::reading::Reading;
use super::sampler::{Request, Sampler};
use super::samples::KnownProcesses;
use super::sampling_thread::SamplingThread;
use super::trace_thread::TraceThread;
use super::triggered_traces::TriggeredTraces;
use crate::run_kit::detach::Detach;
use crate::run_kit::error::{Error, NotWritten};
use crate::run_kit::marks::{LastAnswers, MarkRequest};
use crate::run_kit::observer::Observer;
use crate::run_kit::outcome::Outcome;
use crate::run_kit::service_manager::{self, Watchdog};
use crate::run_kit::start_progress::StartProgress;
use crate::run_kit::{clock, own_allocator, privileges, protection, realtime};
use crate::targets::select::filter;

/// Maximum number of triggers in an interval that get a line and an event each.
const MOST_FIRINGS: usize = 20;

/// A monitor in progress. Dropping it removes its probes.
pub(super) struct ThreadsRun {
    attachment: Attachment,
    pub(super) sampling: SamplingThread,
    pub(super) marks: Marks,
    processes: KnownProcesses,
    builder: IntervalBuilder,
    outputs: Outputs,
    triggers: Triggers,
    /// Reader of the cgroups; `None` if no condition is about cgroups.
    cgroups: Option<CgroupReadings>,
    /// Traces that triggers start; `None` if triggers start no traces.
    traces: Option<TriggeredTraces>,
    once: bool,
    /// True if processes are selected by their properties.
    includes_some: bool,
    seen: Seen,
    watchdog: Watchdog,
}

/// Counts of a monitor in progress.
#[derive(Default)]
struct Seen {
    /// Number of intervals so far.
    intervals: u64,
    /// Number of readings that were dropped because the monitor was too slow.
    skipped: u64,
    /// True if a process was monitored.
    has_process: bool,
    /// True if a monitored process has had counters of the heap.
    has_source: bool,
    /// Number of threads that exited before their counters of the heap could be read, by process.
    unreadable: BTreeMap<Pid, u64>,
}

/// Result of a monitor.
pub(super) struct FinishedRun {
    pub(super) outcome: Outcome,
    pub(super) detach: Detach,
    /// Answers that clients of the socket still wait for.
    pub(super) answers: Option<LastAnswers>,
    /// Result of writing the trace.
    pub(super) trace: Result<(), NotWritten>,
}

impl ThreadsRun {
    /// Attaches the probes, reads the counters a first time, and lets the command run. Returns the monitor and the
    /// pidfds of the targets.
    pub(super) async fn start(
        config: &ThreadsConfig,
        observer: &mut dyn Observer,
    ) -> Result<(Self, Vec<OwnedFd>), Error> {
        config.realtime.map_or(Ok(()), realtime::check)?;
        let clock_start = clock::monotonic();
        let trace = config.trace.as_deref().map(TraceThread::open).transpose()?;
        let marks = Marks::listen(config.recording.as_ref(), observer)?;
        let traces = config.then.clone().map(TriggeredTraces::create).transpose()?;
        let progress = StartProgress::start("checking the kernel", observer.step_display());
        let (attachment, reader, jemalloc) = Attachment::start(config, clock_start, &progress)?;
        drop(progress);
        let outputs = Outputs::create(config, trace, attachment.name(), clock_start, observer)?;
        if config.protect {
            own_allocator::reserve();
            protection::protect().iter().for_each(|warning| log::warn!("{warning}"));
        }
        privileges::forbid_dumps();
        let sampler = Sampler {
            reader,
            clock_start,
            interval: config.interval,
            selection: ProcessSelection::new(attachment.filter().clone()),
            readings: ProcessReadings::default(),
            jemalloc,
            exits: Vec::new(),
            most_exits: config.max_threads,
        };
        let pidfds = attachment.pidfds()?;
        let sampling = SamplingThread::start(sampler, config.realtime)?;
        let mut run = Self {
            attachment,
            sampling,
            marks,
            processes: KnownProcesses::default(),
            builder: IntervalBuilder::new(config.max_threads),
            outputs,
            triggers: Triggers::new(config.conditions.clone()),
            cgroups: config.has_cgroup_conditions().then(CgroupReadings::new),
            traces,
            once: config.once,
            includes_some: config.target.includes_some(),
            seen: Seen::default(),
            watchdog: Watchdog::of_environment(),
        };
        // Usage counts from this first reading on.
        match run.sampling.next().await {
            Some(reading) => {
                run.outputs.start(&reading)?;
                run.observe(reading, observer)
            }
            None => {
                return Err(run.sampling.finish().err().unwrap_or_else(|| Error::Failed(String::from("no counters"))));
            }
        };
        run.attachment.release_command()?;
        service_manager::ready();
        observer.attached(&run.attachment.description());
        let waiting = filter::waiting_note(&config.target, run.attachment.filter());
        for note in waiting.iter().chain(run.attachment.notes()).chain(run.attachment.tracer_notes()) {
            observer.note(note);
        }
        Ok((run, pidfds))
    }

    /// Returns the notification that is sent when an image has stopped at its exec.
    pub(super) fn exec_stopped(&self) -> Arc<Notify> {
        self.attachment.exec_stopped()
    }

    /// Probes newly mapped allocators, answers requests for marks, and reports the end of a
    /// triggered trace.
    pub(super) fn update(&mut self, observer: &mut dyn Observer) {
        self.attachment.update(observer);
        self.watchdog.tick(|| true);
        self.marks.answer(self.outputs.stored_until());
        if let Some(line) = self.traces.as_mut().and_then(TriggeredTraces::poll) {
            observer.alert(&line);
        }
    }

    /// Sets a mark, which ends the interval now.
    pub(super) fn mark(&mut self, request: MarkRequest) {
        if self.marks.add(request) {
            self.sampling.request(Request::Read);
        }
    }

    /// Adds a reading, which ends an interval. Returns false if the monitor has to end.
    pub(super) fn observe(&mut self, reading: Reading, observer: &mut dyn Observer) -> bool {
        self.seen.skipped += reading.skipped;
        self.seen.unreadable.clone_from(&reading.unreadable);
        let attachment = &self.attachment;
        let has_source = &mut self.seen.has_source;
        let source = |pid| {
            let source = attachment.source(pid);
            *has_source |= source != CounterSource::None;
            SourceState { source, is_stale: false }
        };
        let sampling = self.processes.sampling(reading, attachment.losses(), source);
        self.seen.has_process |= !sampling.processes.is_empty();
        let Some(mut interval) = self.builder.observe(sampling) else { return true };
        if self.once && self.seen.intervals > 0 {
            return false;
        }
        let at = interval.span.end;
        interval.events.extend(self.marks.texts().map(|text| ThreadsEvent { at, kind: ThreadsEventKind::Mark(text) }));
        self.fire_triggers(&mut interval, observer);
        self.seen.intervals += 1;
        let marks = self.outputs.write(&interval, observer);
        self.marks.set_sent(at, marks);
        !self.outputs.is_closed() && !self.once
    }

    /// Tests the conditions of the triggers. Adds an event for each condition that has become true, up to
    /// [`MOST_FIRINGS`].
    fn fire_triggers(&mut self, interval: &mut ThreadsInterval, observer: &mut dyn Observer) {
        let cgroups = match &mut self.cgroups {
            Some(readings) => readings.read(self.attachment.cgroups(interval)),
            None => Vec::new(),
        };
        let firings = self.triggers.observe(interval, &cgroups);
        if let Some(more) = firings.len().checked_sub(MOST_FIRINGS).filter(|more| *more > 0) {
            observer.alert(&format!("{more} more conditions became true at {:.1} s", interval.span.end.as_secs_f64()));
        }
        for firing in firings.into_iter().take(MOST_FIRINGS) {
            observer.alert(&format!("trigger at {:.1} s: {firing}", firing.at.as_secs_f64()));
            if let Some(traces) = &mut self.traces {
                observer.alert(&traces.start(firing.pid, firing.at));
            }
            interval.events.push(ThreadsEvent { at: firing.at, kind: ThreadsEventKind::Trigger(firing.to_string()) });
        }
    }

    /// Completes the outputs, and starts to remove the probes.
    pub(super) fn finish(self, observer: &mut dyn Observer) -> Result<FinishedRun, Error> {
        let Self { mut attachment, sampling, mut marks, outputs, includes_some, seen, triggers, traces, .. } = self;
        let Seen { skipped, has_process, has_source, unreadable, .. } = seen;
        let sampled = sampling.finish();
        attachment.update(observer);
        attachment.end_hold();
        attachment.count_late_notes(observer);
        let losses = attachment.losses();
        let (complete, trace) = outputs.finish(observer);
        // An error of the sampler is returned only now: the outputs contain the readings before it.
        sampled?;
        marks.answer(Duration::MAX);
        let answers = marks.close();
        if skipped > 0 {
            observer.note(&format!("{skipped} readings of the counters were too late, so their intervals are longer"));
        }
        for (pid, count) in unreadable {
            let threads = counted(count, "thread", "threads");
            observer.note(&format!(
                "{threads} of process {pid} exited before the counters of its allocator could be read: the bytes since \
                 the last reading are not counted"
            ));
        }
        if has_process && !has_source && attachment.notes().is_empty() {
            observer.note(
                "no monitored process had an allocator that memtrace can count; the columns of the heap are empty",
            );
        }
        let TriggerLosses { subjects_full, values_unknown } = triggers.losses();
        if subjects_full > 0 {
            observer.note(&format!("{subjects_full} values were not compared with --when: there are too many threads"));
        }
        if values_unknown > 0 {
            observer.note(&format!("{values_unknown} values could not be compared with --when: they are not known"));
        }
        for (reason, count) in traces.map(TriggeredTraces::finish).unwrap_or_default() {
            observer.note(&format!("{count} traces were not started: {}", reason.explanation()));
        }
        let complete = complete && skipped == 0 && attachment.is_complete();
        let command = attachment.command_end();
        let nothing_selected = (includes_some && !has_process).then(|| attachment.name().to_owned());
        let outcome = Outcome { losses, command, complete, none_traced: None, nothing_selected };
        Ok(FinishedRun { outcome, detach: attachment.detach(), answers, trace })
    }
}
