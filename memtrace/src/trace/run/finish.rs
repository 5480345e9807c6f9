//! The end of a run: from the last event to the reports.

use std::collections::BTreeMap;
use std::mem;

use memtrace_history::EndedProcesses;
use memtrace_history::pipeline::{RunTotals, count_missing_frames};
use memtrace_model::{
    AccountChanges, Delta, FinishedStacks, ImageId, ImageUsage, LossReason, Losses, PartKeys, Snapshots, Stacks, TagId,
    TagName, Tick,
};

use super::{Trace, coverage};
use crate::run_kit::detach::Detach;
use crate::run_kit::error::Error;
use crate::run_kit::event_loop::Signals;
use crate::run_kit::observer::Observer;
use crate::run_kit::outcome::Outcome;
use crate::run_kit::own_allocator;
use crate::targets::select::Selection;
use crate::targets::track::{Coverage, ProcessTracker, generated_code};
use crate::trace::accounts::RunAccounts;
use crate::trace::activity::RunActivity;
use crate::trace::config::Config;
use crate::trace::cost::processor_time;
use crate::trace::mark_functions::MarkFunctions;
use crate::trace::overhead::{OverheadMonitor, Sample};
use crate::trace::recorder::Recorder;
use crate::trace::reports::{FinishedTrace, Measured, Reports};
use crate::trace::snapshots::{complete_snapshots, page_totals};
use crate::trace::stack_copies::find_copy;
use crate::trace::touch_meter::Touches;

/// The totals of all processes, and what the history of the run lacks of them.
struct Counted {
    snapshots: Snapshots,
    /// Totals of pages before they were compared with the page tables.
    before: Snapshots,
    ended: EndedProcesses,
    coverage: Coverage,
    /// Losses outside of the ledgers.
    losses: Losses,
    /// What the shards have not sent.
    deltas: Vec<(usize, Delta)>,
    unsent: Vec<(Stacks, ImageId, ImageUsage)>,
    accounts: Vec<(u64, AccountChanges)>,
    /// Number of events.
    events: u64,
}

impl Trace {
    /// Stops counting events, writes the reports and starts to remove the probes.
    pub(in crate::trace) async fn finish(
        mut self,
        config: &Config,
        touches: Option<Touches>,
        reports: Reports,
        signals: &mut Signals,
        observer: &mut dyn Observer,
    ) -> Result<(Outcome, Detach), Error> {
        let (measured, overhead) = self.close(config, observer);
        let totals = self.end_shards(config, touches.as_ref(), overhead, measured.window.end);
        let Counted { mut snapshots, before, ended, coverage, losses, deltas, unsent, accounts, events } =
            self.count(totals, &measured);
        // Detach before symbolization, so that the targets run at full speed again.
        let detach = self.detach();
        self.finish_accounts(accounts, &measured.tags, observer);
        let generated_code = generated_code::all(&mut self.tracker);
        let stacks = self.tables.finish(&mut self.kernel, &self.tracker);
        self.record_end(config, [&snapshots, &before], deltas, unsent, &stacks, &losses);
        for snapshot in snapshots.0.values_mut() {
            stacks.apply(snapshot);
            count_missing_frames(snapshot);
        }
        let none_traced = coverage.largest_if_none_is_traced(&snapshots);
        let reports = reports.with_recorder(self.recorder.take()).with_accounts(self.accounts.take());
        let reports = reports.with_activity(self.activity.take());
        let finished = FinishedTrace {
            targets: &self.targets,
            tracker: &self.tracker,
            coverage: &coverage,
            generated_code,
            touches: touches.map(|touches| touches.window),
            measured,
            events,
            facts_at_start: mem::take(&mut self.facts),
            clock_start: self.clock_start,
        };
        let (losses, recorded) = reports.write(config, snapshots, ended, &finished, signals, observer).await?;
        let complete = self.complete && recorded;
        Ok((Outcome { losses, command: self.targets.command_end(), complete, none_traced }, detach))
    }

    /// Stops counting events, and reads what memtrace and the kernel have counted. Returns the measurement of the overhead too.
    fn close(&mut self, config: &Config, observer: &mut dyn Observer) -> (Measured, Option<(OverheadMonitor, Sample)>) {
        if let Err(error) = self.kernel.close() {
            log::warn!("{error}");
            self.complete = false;
        }
        self.mark_entered_functions();
        // At one moment, so that the last interval ends with the trace.
        let (duration, now) = (self.start.elapsed(), self.now());
        let overhead = self.overhead.take().map(|overhead| (overhead, self.overhead_sample()));
        let cpu = processor_time().saturating_sub(self.cpu_at_start);
        self.tables.stop();
        self.targets.count_late_notes();
        self.update_mappings(observer);
        self.kernel.flush_log();
        self.finish_activity(now);
        let measured = Measured {
            window: self.start_tick..now,
            duration,
            cpu,
            counters: self.kernel.counters(),
            reclaim: self.reclaim.take().map(|reclaim| reclaim.finish(&self.kernel)),
            programs: self.kernel.program_time(),
            tags: if config.parts().contains(PartKeys::TAG) { self.kernel.tags() } else { BTreeMap::new() },
        };
        (measured, overhead)
    }

    /// Ends the shards at `now`, and returns their totals with the touched pages.
    fn end_shards(
        &mut self,
        config: &Config,
        touches: Option<&Touches>,
        overhead: Option<(OverheadMonitor, Sample)>,
        now: Tick,
    ) -> RunTotals {
        touches.iter().for_each(|touches| self.shards.set_touches(&touches.processes));
        let mut totals = self.shards.finish(now);
        if config.cold_after.is_some() && touches.is_none() {
            let note = "hot and cold bytes were not measured, because all traced processes had ended";
            self.targets.notes.push(String::from(note));
        }
        // The mapped ranges are removed when they are compared with the page tables.
        touches.iter().for_each(|touches| touches.add_to_mappings(&mut totals.snapshots));
        let calls = totals.calls;
        self.targets.notes.extend(overhead.and_then(|(overhead, sample)| overhead.finish(Sample { calls, ..sample })));
        for failure in &totals.failures {
            log::warn!("{failure}; its events are missing from the report");
            self.complete = false;
        }
        totals
    }

    /// Completes the totals with ended processes, losses, idle processes and page tables.
    fn count(&mut self, totals: RunTotals, measured: &Measured) -> Counted {
        let RunTotals { mut snapshots, ended, deltas, accounts, events, .. } = totals;
        let (ended, coverage_of_ended, unsent) = self.ended.finish(ended, &mut snapshots);
        own_allocator::trim();
        // Processes that have ended are selected by their owners.
        self.tracker.set_owners(snapshots.owners());
        let mut coverage = coverage(&self.filter, &mut self.tracker);
        coverage.merge(coverage_of_ended);
        if coverage.has_no_process() {
            self.targets.notes.push(String::from("no process matched the selection"));
        }
        let selection = Selection::of(&self.filter);
        let is_selected = |tracker: &ProcessTracker, id| selection.contains(tracker, id);
        coverage.add_remaining_late(&self.tracker, &is_selected);
        let mut losses = measured.counters.losses.clone();
        if self.targets.probe_site.is_some() {
            losses.add(LossReason::AllocatorLate, coverage.late());
        }
        let of_activity = self.activity.as_ref().map(RunActivity::losses);
        let of_marks = self.mark_functions.as_ref().map(MarkFunctions::losses);
        of_activity.into_iter().chain(of_marks).for_each(|lost| losses.merge(&lost));
        let is_viewed = self.recorder.as_ref().is_some_and(Recorder::is_viewed);
        let before = if is_viewed { page_totals(&snapshots) } else { Snapshots::default() };
        let (tracker, pages) = (&mut self.tracker, self.pages.as_ref());
        let snapshots =
            complete_snapshots(snapshots, &losses, tracker, pages, &measured.window, &coverage, &is_selected);
        Counted { snapshots, before, ended, coverage, losses, deltas, unsent, accounts, events }
    }

    /// Starts to remove all probes.
    fn detach(&mut self) -> Detach {
        let mut probes = mem::take(&mut self.probes);
        probes.merge(mem::take(&mut self.own_probes));
        self.mark_functions.take().into_iter().for_each(|functions| probes.merge(functions.into_probes()));
        Detach::start(probes)
    }

    /// Adds the `last` changes of accounts, and names the groups.
    fn finish_accounts(
        &mut self,
        last: Vec<(u64, AccountChanges)>,
        tags: &BTreeMap<TagId, TagName>,
        observer: &mut dyn Observer,
    ) {
        if let Some(accounts) = &mut self.accounts {
            accounts.finish(last, &mut self.tracker);
            accounts.name_tags(tags);
            accounts.note_resets(observer);
        }
    }

    /// Adds the end of the run to its history, if there is one: what the shards have not sent, and facts that only ledgers
    /// and page tables have.
    fn record_end(
        &mut self,
        config: &Config,
        [snapshots, before]: [&Snapshots; 2],
        deltas: Vec<(usize, Delta)>,
        unsent: Vec<(Stacks, ImageId, ImageUsage)>,
        stacks: &FinishedStacks,
        losses: &Losses,
    ) {
        let Some(recorder) = &mut self.recorder else { return };
        let mut losses = losses.clone();
        losses.merge(&self.tracker.losses());
        recorder.add_accounts(self.accounts.as_mut().map(RunAccounts::take_intervals).unwrap_or_default());
        recorder.record_rest(deltas, unsent, &mut self.tracker, &find_copy(Some(stacks)), &losses);
        recorder.record_pages(snapshots, before, config.page_sample.get() > 1);
        recorder.record_values_at_end(snapshots);
        recorder.record_old_blocks(snapshots);
        let last = self.accounts.as_mut().and_then(|accounts| accounts.last_interval(&self.tracker));
        last.into_iter().for_each(|last| recorder.record_accounts(last));
    }
}
