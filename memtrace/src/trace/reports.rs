//! The reports of a run, one for each event class: opened before the run, written after it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use memtrace_history::facts::GoProfileMoments;
use memtrace_history::{
    ChangesInParts, EndedProcesses, ExactTotals, Fact, FramesByObject, Interval, MemoryBook, NameTable, Status, facts,
};
use memtrace_host::debuginfod;
use memtrace_host::procfs::Objects;
use memtrace_host::symbolizer::SymbolizerProcess;
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{
    AccountTable, Bytes, EventClass, GeneratedCode, ImageId, Losses, PatchedProcess, ProcessImage, Profile,
    RaisedMinSize, RunFacts, Samplers, Snapshots, TouchWindow, printable,
};
use memtrace_object::symbolize::{ImageCode, Symbolizer};
use memtrace_report::AccountTextOptions;

use super::account_text::text_of_accounts;
use super::cost::cost_so_far;
use super::debug_files;
use super::facts::{Measured, MeasuredReclaim, UnnamedActivity};
use super::recorder::{Recorder, header_of_run, killed_cgroups};
use super::run_report::RunReport;
use crate::run_kit::clock::{self, wall_time_of_start};
use crate::run_kit::config::Output;
use crate::run_kit::error::{Error, NotWritten};
use crate::run_kit::event_loop::Signals;
use crate::run_kit::forced_end;
use crate::run_kit::observer::Observer;
use crate::run_kit::outputs::{self, Outputs};
use crate::run_kit::own_allocator;
use crate::run_kit::reports::fail;
use crate::run_kit::text_layout;
use crate::targets::select::Targets;
use crate::targets::track::{Coverage, ProcessTracker};
use crate::trace::config::{AccountReport, Config};

/// Open outputs of a run, and the settings of the search for debug files.
pub(super) struct Reports {
    /// Outputs of stacks, by event class.
    outputs: BTreeMap<EventClass, Outputs>,
    debuginfod: Option<debuginfod::Settings>,
    /// Outputs of accounts at the end.
    account_outputs: Option<Outputs>,
    /// Outputs of accounts over time.
    over_time: Option<Outputs>,
}

/// Totals of a run, for its reports.
pub(super) struct Results {
    pub(super) snapshots: Snapshots,
    pub(super) ended: EndedProcesses,
    /// History with all changes, but without names; `None` if nothing reads intervals.
    pub(super) recorder: Option<Recorder>,
    /// Accounts that are not derived from stacks.
    pub(super) accounts: Option<AccountTable>,
    /// Activity of threads; `None` if it was not traced.
    pub(super) activity: Option<UnnamedActivity>,
}

/// Facts about a trace that has ended.
pub(super) struct FinishedTrace<'run> {
    /// Targets, with their name in reports and the notes for the reports.
    pub(super) targets: &'run Targets,
    pub(super) tracker: &'run ProcessTracker,
    pub(super) coverage: &'run Coverage,
    /// Files with the names of generated code, by image.
    pub(super) generated_code: BTreeMap<ImageId, GeneratedCode>,
    /// Method and duration of the measurement of hot and cold bytes, if there was one.
    pub(super) touches: Option<TouchWindow>,
    pub(super) measured: Measured,
    pub(super) reclaim: Option<MeasuredReclaim>,
    /// Minimum size of recorded allocations, if it was raised during the run.
    pub(super) raised: Option<RaisedMinSize>,
    /// Samplers of the targets.
    pub(super) samplers: Samplers,
    /// Processes whose allocators were patched.
    pub(super) patched: Vec<PatchedProcess>,
    pub(super) go_profiles: GoProfileMoments,
    /// Number of events of the run.
    pub(super) events: u64,
    /// Facts that were known when the run started.
    pub(super) facts_at_start: Vec<Fact>,
    /// Origin of ticks on the monotonic clock.
    pub(super) origin: Duration,
}

impl Reports {
    /// Opens the files of every report. If one fails, none is opened.
    pub(super) fn open(config: &Config) -> Result<Self, Error> {
        let outputs = Outputs::open_for(&config.events, &config.outputs)?.into_iter().collect();
        let (mut account_outputs, mut over_time) = (None, None);
        if let Some(accounts) = &config.accounts {
            let is_over_time = |output: &Output| output.format.shows_accounts_over_time();
            let (of_intervals, at_end): (Vec<_>, _) = accounts.outputs.iter().cloned().partition(is_over_time);
            account_outputs = Some(Outputs::open(&at_end)?);
            over_time = (!of_intervals.is_empty()).then(|| Outputs::open(&of_intervals)).transpose()?;
        }
        let debuginfod = debug_files::settings(&config.debuginfod)?;
        Ok(Self { outputs, debuginfod, account_outputs, over_time })
    }

    /// Writes every report, and completes the recording. Returns the losses, and true if the history was recorded and
    /// read completely.
    pub(super) async fn write(
        self,
        config: &Config,
        results: Results,
        finished: &FinishedTrace<'_>,
        signals: &mut Signals,
        observer: &mut dyn Observer,
    ) -> Result<(Losses, bool), Error> {
        let Self { outputs, debuginfod, account_outputs, over_time } = self;
        let Results { snapshots, ended, mut recorder, accounts, activity } = results;
        let mut facts = finished.facts(config, &snapshots);
        let recorder_of_images = recorder.as_mut();
        let changes = recorder_of_images.map(|recorder| finished.record_images(config, recorder, &snapshots));
        let code_of = |id, image: &ProcessImage| ImageCode::new(image, finished.generated_code.get(&id), &TargetFiles);
        let (images, window) = (finished.tracker.images(), &finished.measured.window);
        let end = ExactTotals::new(snapshots, images, code_of, ended, window, changes.unwrap_or_default());
        let names = SymbolizerProcess::new(forced_end::skips_names);
        let mut symbolizer = Symbolizer::new(&TargetFiles, Box::new(names)).with_reopen(Objects::reopen);
        if let Some(settings) = &debuginfod {
            let objects = end.objects_with_calls();
            let counts = debug_files::find(settings, &mut symbolizer, &objects, signals, observer).await;
            facts.extend(facts::of_debug_files(&counts));
        }
        let end = end.with_activity(activity.map(|activity| Arc::new(activity(&symbolizer))));
        let mut names = NameTable::new(FramesByObject::default(), symbolizer);
        if let Some(recorder) = recorder.as_mut().filter(|recorder| recorder.is_viewed()) {
            names.add(recorder.paths());
            recorder.record_names(names.known().clone());
        }
        let (mut recording, mut only_end) = (None, finished.only_end(config));
        let has_intervals = recorder.is_some();
        let book = recorder.as_mut().and_then(|recorder| recorder.view(&mut recording));
        let is_lost = has_intervals && book.is_none();
        let book = book.unwrap_or(&mut only_end);
        book.set_end_of_run(end);
        let all_facts = finished.facts_at_start.iter().chain(&facts).cloned().collect();
        let report = RunReport::new(config, book, all_facts, observer);
        let report = if is_lost { report.without_intervals() } else { report };
        let accounts =
            config.accounts.as_ref().zip(account_outputs).map(|(report, outputs)| (report, accounts, outputs));
        let (failures, losses) = (Vec::new(), Losses::default());
        let mut writer = ReportWriter { config, outputs, accounts, observer, facts, failures, losses };
        let cost = |class| finished.cost(class);
        let is_read =
            report.for_each_class(&names, cost, |class, profile, options| writer.write(class, profile, &options));
        let ReportWriter { observer, facts, mut failures, losses, .. } = writer;
        if let (Some(outputs), Some(accounts)) = (over_time, &config.accounts) {
            failures.extend(match is_lost {
                true => fail(outputs, "the recording cannot be read", observer),
                false => report.write_accounts(&accounts.keys, outputs, observer),
            });
        }
        // The writer cannot complete the file while the file is read.
        drop(report);
        drop(recording);
        let mut is_complete = !is_lost;
        if let Some(mut recorder) = recorder {
            recorder.add_facts(facts);
            if let Some((path, status)) = recorder.finish() {
                is_complete &= is_recorded(&path, &status, observer);
            }
        }
        is_complete &= is_read?;
        if failures.is_empty() { Ok((losses, is_complete)) } else { Err(Error::NotWritten(failures)) }
    }
}

/// Writer of the reports of all event classes.
struct ReportWriter<'a> {
    config: &'a Config,
    outputs: BTreeMap<EventClass, Outputs>,
    /// Accounts to write instead of stacks.
    accounts: Option<(&'a AccountReport, Option<AccountTable>, Outputs)>,
    observer: &'a mut dyn Observer,
    /// Facts that are added to the recording.
    facts: Vec<Fact>,
    failures: Vec<NotWritten>,
    losses: Losses,
}

impl ReportWriter<'_> {
    fn write(&mut self, class: EventClass, profile: Profile, options: &memtrace_report::Options) {
        let config = self.config;
        self.facts.extend(profile.run.cost.iter().flat_map(|cost| facts::of_cost(class, cost)));
        self.facts.extend(facts::of_notes(&profile.run.notes));
        let outputs = self.outputs.remove(&class);
        let (written, failures, summary) = match self.accounts.take() {
            Some((report, accounts, outputs)) => {
                let table = account_table(config, report, accounts, &profile);
                let options = |width| AccountTextOptions { sort: report.sort, rows: config.rows(), width };
                let of_stdout = self.observer.output_columns();
                let content = |format, is_stdout: bool, out: &mut dyn io::Write| {
                    let width = of_stdout.filter(|_| is_stdout);
                    memtrace_report::write_accounts(format, &table, &options(width), out)
                };
                let (written, failures) = outputs.fill(&content, &outputs::rescue_directories());
                let width = self.observer.summary_size().map(text_layout::line_width);
                (written, failures, (!report.shows_text()).then(|| text_of_accounts(&table, &options(width))))
            }
            None => {
                let has_number = config.top.is_some();
                let written =
                    outputs.map(|outputs| outputs.write(&profile, options, has_number, &outputs::rescue_directories()));
                let (written, failures) = written.unwrap_or_default();
                let layout = text_layout::layout(self.observer.summary_size(), has_number);
                let mut summary = Vec::new();
                // Writing to a vector does not fail.
                let _ = memtrace_report::write_text(&profile, options, layout, &mut summary);
                (written, failures, Some(String::from_utf8_lossy(&summary).into_owned()))
            }
        };
        if let Some(summary) = summary {
            self.observer.summary(&summary);
        }
        for path in written {
            self.observer.note(&format!("wrote {}", printable(&path)));
        }
        self.failures.extend(failures);
        // Each class has the losses of all classes, except for lost frames, which belong to one
        // class.
        if profile.losses.total() > self.losses.total() {
            self.losses = profile.losses;
        }
    }
}

impl FinishedTrace<'_> {
    /// Returns the facts that are known at the end of the run, except for its cost and debug files.
    fn facts(&self, config: &Config, snapshots: &Snapshots) -> Vec<Fact> {
        let Measured { window, duration, .. } = &self.measured;
        let mut facts = facts::at_end(window.end, *duration).to_vec();
        facts.extend(facts::of_notes(&self.targets.notes));
        facts.extend(self.raised.into_iter().flat_map(facts::of_raised));
        facts.extend(facts::of_changed_go_profiles(&GoProfileMoments::default(), &self.go_profiles));
        for &class in &config.events {
            facts.extend(facts::of_class(&self.facts_of_class(class, snapshots)));
        }
        facts
    }

    fn facts_of_class(&self, class: EventClass, snapshots: &Snapshots) -> RunFacts {
        let measured = &self.measured;
        let probes_allocators = class.probes_allocators();
        let reclaim = self.reclaim.as_ref().filter(|_| class.counts_stalls());
        let kills = snapshots.0.get(&class).into_iter().flat_map(|snapshot| &snapshot.oom_kills);
        RunFacts {
            class,
            samplers: if probes_allocators { self.samplers.clone() } else { Samplers::default() },
            patched: if probes_allocators { self.patched.clone() } else { Vec::new() },
            allocators: if probes_allocators { self.tracker.allocators.names().clone() } else { Default::default() },
            tags: if probes_allocators { measured.tags.clone() } else { BTreeMap::new() },
            tag_functions: if probes_allocators { measured.tag_functions.clone() } else { Vec::new() },
            killed_cgroups: killed_cgroups(kills),
            reclaim: reclaim.map(|reclaim| reclaim.machine.clone()),
            cgroups: reclaim.map(|reclaim| reclaim.memcgs.clone()).unwrap_or_default(),
            filtered: if probes_allocators { measured.counters.filtered } else { Default::default() },
            touches: self.touches,
            untraced: self.coverage.untraced(class, snapshots),
            ..RunFacts::default()
        }
    }

    /// Returns the cost of the run so far.
    fn cost(&self, class: EventClass) -> Vec<Fact> {
        own_allocator::trim();
        let Measured { counters, cpu, programs, hits, .. } = &self.measured;
        facts::of_cost(class, &cost_so_far(self.events, counters.nested, *cpu, programs, *hits))
    }

    /// Records the images at the end, and returns the changes of live memory in each part of the run.
    fn record_images(&self, config: &Config, recorder: &mut Recorder, snapshots: &Snapshots) -> ChangesInParts {
        if recorder.is_viewed() {
            recorder.record_images(snapshots, self.tracker.images());
        }
        let with_trends: Vec<_> = config.events.iter().copied().filter(|&class| config.has_trends(class)).collect();
        recorder.live_changes(&with_trends, snapshots, &self.measured.window)
    }

    /// Returns a history with one interval, so that the end can be added.
    fn only_end(&self, config: &Config) -> MemoryBook {
        let span = Duration::ZERO..self.measured.window.end.since_start();
        let start = wall_time_of_start(|| clock::monotonic().saturating_sub(self.origin));
        let mut book = MemoryBook::new(header_of_run(config, span.end, start), Bytes(u64::MAX));
        book.append(Interval { span, ..Interval::default() });
        book
    }
}

/// Notes the path of the complete recording. Returns false if intervals could not be recorded.
fn is_recorded(path: &Path, status: &Status, observer: &mut dyn Observer) -> bool {
    observer.note(&format!("recorded {}", printable(path)));
    if let Some(gap) = &status.open_gap {
        log::warn!("the last {} intervals are missing in the recording", gap.intervals);
    }
    status.open_gap.is_none()
}

/// Returns the table of accounts of a run. `accounts`: accounts that are not derived from stacks.
fn account_table(
    config: &Config,
    report: &AccountReport,
    accounts: Option<AccountTable>,
    profile: &Profile,
) -> AccountTable {
    let of_stacks =
        || memtrace_report::accounts_of_stacks(profile, &report.keys, |by| config.grouping.labels_by(by, profile));
    let mut table = accounts.unwrap_or_else(of_stacks);
    table.losses.clone_from(&profile.losses);
    table.tag_functions.clone_from(&profile.run.tag_functions);
    table.samplers.clone_from(&profile.run.samplers);
    table.notes.extend(profile.run.raised.map(|raised| raised.to_string()));
    table.notes.extend(memtrace_report::account_note(&profile.run.samplers));
    let by_thread = facts::main_thread_note(&profile.run.samplers, &report.keys);
    table.notes.extend(by_thread.filter(|note| !profile.run.notes.contains(note)));
    table.notes.extend(profile.run.notes.iter().cloned());
    if table.rows.is_empty() {
        table.notes.push(String::from("no traced thread has allocated or freed a block"));
    }
    report.sort.sort_rows(&mut table.rows);
    table
}
