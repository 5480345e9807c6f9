//! The end of a run: from the last event to the reports.

use std::collections::BTreeMap;
use std::mem;

use memtrace_history::EndedProcesses;
use memtrace_history::facts::GoProfileMoments;
use memtrace_history::pipeline::{Delays, RunTotals, count_missing_frames};
use memtrace_model::{
    CallsBySize, Delta, ImageId, ImageUsage, LossReason, Losses, PartKeys, Samplers, Snapshots, Stacks, TagId, TagName,
    format,
};

use super::Trace;
use super::start::coverage;
use crate::run_kit::detach::Detach;
use crate::run_kit::error::Error;
use crate::run_kit::event_loop::Signals;
use crate::run_kit::observer::Observer;
use crate::run_kit::outcome::Outcome;
use crate::run_kit::own_allocator;
use crate::run_kit::privileges;
use crate::targets::finished_stacks::FinishedStacks;
use crate::targets::select::{Selection, count_unread_files};
use crate::targets::track::{Coverage, ProcessTracker, generated_code};
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::cost::processor_time;
use crate::trace::facts::{Facts, Measured};
use crate::trace::recorder::Recorder;
use crate::trace::reports::{FinishedTrace, Reports, Results};
use crate::trace::snapshots::{complete_snapshots, page_totals};
use crate::trace::stack_copies::find_copy;
use crate::trace::tag_functions;
use crate::trace::touch_meter::Touches;

/// Changes that the shards have not sent.
struct Unsent {
    deltas: Vec<(usize, Delta)>,
    /// Changes of ended images that no delta contains, and the stacks of these changes.
    changes: Vec<(Stacks, ImageId, ImageUsage)>,
}

/// Data that the history of the run lacks, and data that only reports need.
struct Rest {
    /// Totals of pages before the comparison with the page tables.
    before: Snapshots,
    ended: EndedProcesses,
    coverage: Coverage,
    unsent: Unsent,
    /// Number of events of the run.
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
        let mut facts = self.close(config, touches.as_ref(), observer);
        let totals = self.end_shards(config, touches.as_ref(), &mut facts);
        let rest = self.count(totals, &mut facts);
        let Self { mut context, parts, own_probes, facts: facts_at_start, .. } = self;
        parts.finish(&mut context, &mut facts, observer);
        // Detach before symbolization, so that the targets run at full speed again.
        let mut probes = mem::take(&mut context.probes);
        probes.merge(own_probes);
        let detach = Detach::start(probes);
        context.left_out.update();
        context.targets.notes.extend(context.left_out.note());
        // A process that exits can delete its perf map, so the perf maps are opened now.
        generated_code::add_running(&mut context.tracker);
        context.tracker.code_generators.open_perf_maps();
        let stacks = context.tables.finish(&mut context.kernel, &context.tracker);
        // By now, the parts have read page tables, and the construction of unwind tables has read objects.
        let unread = count_unread_files(&context.filter, &mut context.tracker);
        for snapshot in facts.snapshots.0.values_mut() {
            snapshot.losses.add(LossReason::FileTimeout, unread);
        }
        let Rest { before, ended, coverage, unsent, events } = rest;
        record_end(config, &mut context, &mut facts, &before, unsent, &stacks);
        // The recorder has opened perf maps again, which closed the files that were open before.
        let generated_code = generated_code::all(&mut context.tracker);
        for snapshot in facts.snapshots.0.values_mut() {
            stacks.apply(snapshot);
            count_missing_frames(snapshot);
        }
        let none_traced = coverage.largest_if_none_is_traced(&facts.snapshots);
        let is_empty = config.target.includes_some() && coverage.has_no_process(&facts.snapshots);
        let nothing_selected = is_empty.then(|| context.targets.name.clone());
        let Context { mut targets, tracker, tables, clock, recorder, complete, .. } = context;
        // Ends the thread that builds tables.
        drop(tables);
        let Facts { measured, snapshots, accounts, activity, reclaim, raised, samplers, patched, go_profiles, .. } =
            facts;
        let finished = FinishedTrace {
            targets: &targets,
            tracker: &tracker,
            coverage: &coverage,
            generated_code,
            touches: touches.map(|touches| touches.window),
            measured,
            reclaim,
            raised,
            samplers,
            patched,
            go_profiles,
            events,
            facts_at_start,
            origin: clock.origin,
        };
        let results = Results { snapshots, ended, recorder, accounts, activity };
        privileges::keep_for_reports();
        let (losses, recorded) = reports.write(config, results, &finished, signals, observer).await?;
        let complete = complete && recorded;
        let command = targets.command_end();
        Ok((Outcome { losses, command, complete, none_traced, nothing_selected }, detach))
    }

    /// Stops counting events, and reads the counts of memtrace, of the kernel and of the parts.
    fn close(&mut self, config: &Config, touches: Option<&Touches>, observer: &mut dyn Observer) -> Facts {
        if let Err(error) = self.context.kernel.close() {
            log::warn!("{error}");
            self.context.complete = false;
        }
        self.mark_entered_functions();
        // Read both times at one moment, so that the last interval ends with the trace. The parts can take seconds to close.
        let (duration, now) = self.context.clock.stop();
        touches.iter().for_each(|touches| self.context.shards.set_touches(&touches.processes));
        self.parts.close(&mut self.context);
        self.context.shards.stop(now);
        let cpu = processor_time().saturating_sub(self.cpu_at_start);
        self.parts.stop(&mut self.context);
        self.context.tables.stop();
        self.context.targets.notes.extend(privileges::priority_note().map(String::from));
        self.context.targets.count_late_notes();
        self.update_mappings(observer);
        self.context.targets.end_hold();
        self.context.targets.notes.extend(self.context.probes.waiting_note());
        self.context.targets.notes.extend(self.postponed.note());
        let tags = if config.parts().contains(PartKeys::TAG) { self.read_tags() } else { BTreeMap::new() };
        let kernel = &mut self.context.kernel;
        kernel.flush_log();
        let counters = kernel.counters();
        let hits = counters.hits.since(self.hits_at_start).total();
        let mut facts = Facts {
            losses: counters.losses.clone(),
            measured: Measured {
                window: self.context.clock.start_tick..now,
                duration,
                cpu,
                counters,
                programs: kernel.probe_time(),
                hits,
                tags,
                tag_functions: tag_functions::calls(kernel, &self.context.tags.functions),
            },
            snapshots: Snapshots::default(),
            calls: CallsBySize::default(),
            raised: None,
            account_changes: Vec::new(),
            accounts: None,
            last_accounts: None,
            activity: None,
            reclaim: None,
            samplers: Samplers::default(),
            patched: Vec::new(),
            go_profiles: GoProfileMoments::default(),
        };
        self.parts.read_rest(now, &mut self.context, &mut facts);
        facts
    }

    /// Returns the tags that targets have set, with the names that a preset finds in the target now.
    fn read_tags(&mut self) -> BTreeMap<TagId, TagName> {
        let Context { kernel, tags, targets, .. } = &mut self.context;
        let mut named = kernel.tags();
        tags.name_at_end(&mut named);
        targets.notes.extend(tags.note(&named));
        named
    }

    /// Ends the shards, and returns their totals. Touched pages are added to the totals of
    /// mappings.
    fn end_shards(&mut self, config: &Config, touches: Option<&Touches>, facts: &mut Facts) -> RunTotals {
        let Context { shards, targets, complete, .. } = &mut self.context;
        let mut totals = shards.finish(facts.measured.window.end);
        *complete &= totals.demoted.is_empty();
        if config.touches.cold_after.is_some() && touches.is_none() {
            let reason = match facts.losses.get(LossReason::OverheadLimit) {
                0 => "all traced processes had ended",
                _ => "the trace cost the targets too much",
            };
            targets.notes.push(format!("hot and cold bytes were not measured, because {reason}"));
        }
        // The mapped ranges are removed later, when they are compared with the page tables.
        touches.iter().for_each(|touches| touches.add_to_mappings(&mut totals.snapshots));
        for failure in &totals.failures {
            log::warn!("{failure}; its events are missing from the report");
            *complete = false;
        }
        totals
    }

    /// Completes the totals with ended processes, losses and idle processes.
    fn count(&mut self, totals: RunTotals, facts: &mut Facts) -> Rest {
        let RunTotals { mut snapshots, ended, deltas, accounts, events, calls, delays, .. } = totals;
        (facts.account_changes, facts.calls) = (accounts, calls);
        let (ended, coverage_of_ended, changes) = self.ended.finish(ended, &mut snapshots);
        own_allocator::trim();
        // The selection of ended processes needs their owners.
        self.context.tracker.set_owners(snapshots.owners());
        let mut coverage = coverage(&mut self.context);
        coverage.merge(coverage_of_ended);
        let Context { targets, tracker, filter, recorder, .. } = &mut self.context;
        count_unread_files(filter, tracker);
        if coverage.has_no_process(&snapshots) {
            targets.notes.push(String::from("no process matched the selection"));
        }
        let selection = Selection::of(filter);
        let is_selected = |tracker: &ProcessTracker, id| selection.contains(tracker, id);
        coverage.add_remaining_late(tracker, &is_selected);
        if targets.probe_site.is_some() {
            facts.losses.add(LossReason::AllocatorLate, coverage.late());
        }
        targets.notes.extend(delay_note(&facts.losses, delays));
        self.mark_functions.iter().for_each(|functions| facts.losses.merge(&functions.losses()));
        let is_viewed = recorder.as_ref().is_some_and(Recorder::is_viewed);
        let before = if is_viewed { page_totals(&snapshots) } else { Snapshots::default() };
        let end = facts.measured.window.end;
        facts.snapshots = complete_snapshots(snapshots, &facts.losses, tracker, end, &coverage, &is_selected);
        Rest { before, ended, coverage, unsent: Unsent { deltas, changes }, events }
    }
}

/// Returns a note about the reason why rings were full; `None` if no ring was full.
fn delay_note(losses: &Losses, delays: Delays) -> Option<String> {
    let is_full = |(reason, count): (LossReason, u64)| count > 0 && reason.name().starts_with("ring_full");
    if !losses.iter().any(is_full) {
        return None;
    }
    let Delays { gap, waited, read, records } = delays;
    Some(format!(
        "a ring of events was not read for up to {}, of which its thread waited {} for a processor; the longest read took {} for \
         {}",
        format::duration(gap),
        format::duration(waited),
        format::duration(read),
        format::counted(records as u64, "record", "records"),
    ))
}

/// Adds the end of the run to its history, if there is one: the changes that the shards have not sent, and the facts
/// that only ledgers and page tables have.
fn record_end(
    config: &Config,
    context: &mut Context,
    facts: &mut Facts,
    before: &Snapshots,
    unsent: Unsent,
    stacks: &FinishedStacks,
) {
    let Some(recorder) = &mut context.recorder else { return };
    let mut losses = facts.losses.clone();
    losses.merge(&context.tracker.losses());
    recorder.record_rest(unsent.deltas, unsent.changes, &mut context.tracker, &find_copy(Some(stacks)), &losses);
    recorder.record_pages(&facts.snapshots, before, config.pages.one_in().get() > 1);
    recorder.record_values_at_end(&facts.snapshots);
    recorder.record_old_blocks(&facts.snapshots);
    facts.last_accounts.take().into_iter().for_each(|last| recorder.record_accounts(last));
}
