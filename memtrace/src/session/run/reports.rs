//! The reports of a run, one for each event class: opened before it, written after it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::accounts::RunAccounts;
use super::activity::RunActivity;
use super::cost::cost_so_far;
use super::debug_files;
use super::recorder::{ChangesInParts, FinishedBook, Recorder};
use super::wait::Signals;
use crate::debuginfod;
use crate::history::{
    EndedProcesses, FramesByObject, NameTable, NamedClasses, NamedStacks, Recording, ReportStacks, Status, facts,
    has_trends,
};
use crate::kernel::{Counters, ProgramTime};
use crate::model::{
    AccountTable, CgroupId, EventClass, GeneratedCode, ImageId, Losses, ProcessImage, Profile, Quantity, RunFacts,
    Snapshot, Snapshots, TagId, TagName, Tick, TouchWindow, Untraced, printable,
};
use crate::procfs::Objects;
use crate::report;
use crate::session::config::{AccountReport, Config, Output};
use crate::session::error::{Error, NotWritten};
use crate::session::observer::Observer;
use crate::session::outputs::{self, Outputs};
use crate::session::own_allocator;
use crate::session::replay::RecordedOutputs;
use crate::session::sample::{self, MeasuredReclaim};
use crate::session::select::Targets;
use crate::session::track::{Coverage, ProcessTracker};
use crate::symbolize::{ImageCode, Symbolizer};

/// Open outputs of each event class, and the servers of debug files.
pub(super) struct Reports {
    outputs: Vec<(EventClass, Outputs)>,
    debuginfod: Option<debuginfod::Settings>,
    /// `None` if nothing reads intervals.
    recorder: Option<Recorder>,
    /// Outputs of accounts at the end.
    account_outputs: Option<Outputs>,
    /// Outputs that are written from the history.
    from_history: RecordedOutputs,
    accounts: Option<RunAccounts>,
    /// `None` if the activity of threads was not traced.
    activity: Option<RunActivity>,
}

/// Results of a finished run except for its snapshots.
pub(super) struct FinishedTrace<'run> {
    /// With the name of the targets in reports, and notes.
    pub(super) targets: &'run Targets,
    pub(super) tracker: &'run ProcessTracker,
    pub(super) coverage: &'run Coverage,
    /// Files with the names of generated code.
    pub(super) generated_code: BTreeMap<ImageId, GeneratedCode>,
    /// How hot and cold bytes were measured.
    pub(super) touches: Option<TouchWindow>,
    pub(super) measured: Measured,
    /// Number of events.
    pub(super) events: u64,
}

/// What memtrace and the kernel have counted when tracing stops.
pub(super) struct Measured {
    pub(super) window: Range<Tick>,
    pub(super) duration: Duration,
    /// Processor time of memtrace while events were recorded.
    pub(super) cpu: Duration,
    pub(super) counters: Counters,
    pub(super) programs: ProgramTime,
    /// Tags that programs have set.
    pub(super) tags: BTreeMap<TagId, TagName>,
    pub(super) reclaim: Option<MeasuredReclaim>,
}

impl Reports {
    /// Opens the files of every report, or none.
    pub(super) fn open(config: &Config) -> Result<Self, Error> {
        let shows_moments = |output: &Output| config.shows_heap_profiles() && output.format.shows_moments();
        let (recorded, others): (Vec<_>, Vec<_>) = config.outputs.iter().cloned().partition(shows_moments);
        let outputs = Outputs::open_for(&config.events, &others)?;
        let stacks = match recorded.as_slice() {
            [] => BTreeMap::new(),
            recorded => Outputs::open_for(&config.events, recorded)?.into_iter().collect(),
        };
        let (mut from_history, mut account_outputs) = (RecordedOutputs { stacks, accounts: None }, None);
        if let Some(accounts) = &config.accounts {
            let is_over_time = |output: &Output| output.format.shows_accounts_over_time();
            let (over_time, at_end): (Vec<_>, _) = accounts.outputs.iter().cloned().partition(is_over_time);
            account_outputs = Some(Outputs::open(&at_end)?);
            from_history.accounts = (!over_time.is_empty()).then(|| Outputs::open(&over_time)).transpose()?;
        }
        let debuginfod = debug_files::settings(&config.debuginfod)?;
        let (recorder, accounts, activity) = (None, None, None);
        Ok(Self { outputs, debuginfod, recorder, account_outputs, from_history, accounts, activity })
    }

    /// Completes this recording too: it has all changes, but no names.
    pub(super) fn with_recorder(self, recorder: Option<Recorder>) -> Self {
        Self { recorder, ..self }
    }

    /// Writes these accounts too.
    pub(super) fn with_accounts(self, accounts: Option<RunAccounts>) -> Self {
        Self { accounts, ..self }
    }

    /// Shows this activity of threads too.
    pub(super) fn with_activity(self, activity: Option<RunActivity>) -> Self {
        Self { activity, ..self }
    }

    /// Writes every report, and completes the recording. Returns the losses, and false if intervals could not be recorded.
    pub(super) async fn write(
        self,
        config: &Config,
        snapshots: Snapshots,
        ended: EndedProcesses,
        finished: &FinishedTrace<'_>,
        signals: &mut Signals,
        observer: &mut dyn Observer,
    ) -> Result<(Losses, bool), Error> {
        let mut symbolizer = Symbolizer::new().with_reopen(Objects::reopen);
        let debug_files = match &self.debuginfod {
            Some(settings) => {
                let images = finished.tracker.images();
                Some(debug_files::find(settings, &mut symbolizer, &snapshots, &ended, images, signals, observer).await)
            }
            None => None,
        };
        let activity = self.activity.map(|activity| Arc::new(activity.into_activity(&symbolizer)));
        let mut names = NameTable::new(FramesByObject::default(), symbolizer);
        let (mut recorder, mut account_outputs) = (self.recorder, self.account_outputs);
        if let Some(recorder) = recorder.as_mut().filter(|recorder| recorder.is_viewed()) {
            names.add(recorder.paths());
            recorder.add_names(names.known().clone(), &snapshots, finished.tracker.images());
            recorder.add_facts(facts::at_end(finished.measured.window.end, finished.measured.duration));
        }
        let with_trends: Vec<_> = config.events.iter().copied().filter(|&class| shows_trends(config, class)).collect();
        let changes = recorder
            .as_ref()
            .map(|recorder| recorder.live_changes(&with_trends, &snapshots, &finished.measured.window));
        let ChangesInParts { parts, by_stack } = changes.unwrap_or_default();
        let timeline = recorder.as_ref().and_then(Recorder::memory_over_time);
        let trace = finished.measured.window.start.since_start()..finished.measured.window.end.since_start();
        let mut losses = Losses::default();
        let mut failures = Vec::new();
        let facts_of = |(class, outputs)| {
            let untraced = finished.coverage.untraced(class, &snapshots);
            let killed = snapshots.0.get(&class).map(killed_cgroups).unwrap_or_default();
            (class, outputs, untraced, killed)
        };
        let outputs: Vec<_> = self.outputs.into_iter().map(facts_of).collect();
        let code_of = |id, image: &ProcessImage| ImageCode::new(image, finished.generated_code.get(&id));
        let images = finished.tracker.images();
        let stacks = ReportStacks::of_run(snapshots, images, code_of, ended, &finished.measured.window, by_stack);
        let mut classes = NamedClasses::new(stacks, &names);
        for (class, outputs, untraced, killed) in outputs {
            let stacks = classes.take(class);
            own_allocator::trim();
            let facts = finished.facts(config, class, &killed, untraced, &stacks);
            let timeline = timeline.as_ref().map(|timeline| timeline.finish(class, facts.page_sample, &trace));
            let run = RunFacts {
                parts: if with_trends.contains(&class) { parts.clone() } else { Vec::new() },
                timeline,
                activity: activity.clone(),
                debug_files: debug_files.clone(),
                ..facts
            };
            let mut profile = stacks.into_profile(run, Vec::new(), |profile| config.grouping.label(profile));
            if let Some(recorder) = &mut recorder {
                let facts = facts::of_class(&profile.run).into_iter();
                recorder.add_facts(facts.chain(facts::of_notes(&profile.run.notes)));
            }
            match (&config.accounts, &self.accounts, account_outputs.take()) {
                (Some(report), Some(accounts), Some(outputs)) => {
                    let table = account_table(config, report, accounts, &mut profile, finished);
                    let summary = (!report.shows_text()).then(|| text_of_accounts(&table, config.top));
                    failures.extend(write_accounts(&table, config.top, outputs, observer, summary.as_deref()));
                }
                _ => failures.extend(write(config, &finished.targets.name, outputs, &profile, observer)?),
            }
            // Each class contains the losses of all; only lost frames belong to one class.
            if profile.losses.total() > losses.total() {
                losses = profile.losses;
            }
        }
        let mut is_recorded = true;
        match recorder.map(Recorder::finish) {
            Some(FinishedBook::File(path, status)) => {
                is_recorded = is_complete(&path, &status, observer);
                if !self.from_history.is_empty() {
                    failures.extend(match Recording::open(&path) {
                        Ok(recording) => self.from_history.write(&recording, &path, config, observer),
                        Err(source) => self.from_history.fail(&Error::Recording { path, source }, observer),
                    });
                }
            }
            Some(FinishedBook::Memory(book)) => {
                failures.extend(self.from_history.write(&*book, Path::new("the history"), config, observer));
            }
            None => {}
        }
        if failures.is_empty() { Ok((losses, is_recorded)) } else { Err(Error::NotWritten(failures)) }
    }
}

impl FinishedTrace<'_> {
    /// Returns the facts of the run for the profile of `class`.
    fn facts(
        &self,
        config: &Config,
        class: EventClass,
        killed: &BTreeSet<CgroupId>,
        untraced: Untraced,
        stacks: &NamedStacks,
    ) -> RunFacts {
        let measured = &self.measured;
        let probes_allocators = class.probes_allocators();
        let reclaim = measured.reclaim.as_ref().filter(|_| class.counts_stalls());
        let hits = if probes_allocators { stacks.allocations() } else { 0 };
        RunFacts {
            class,
            page_sample: if class.counts_pages() { config.page_sample.get() } else { 0 },
            duration: measured.duration,
            window: None,
            parts: Vec::new(),
            timeline: None,
            activity: None,
            allocators: if probes_allocators { self.tracker.allocators.names().clone() } else { Default::default() },
            tags: if probes_allocators { measured.tags.clone() } else { BTreeMap::new() },
            killed_cgroups: sample::paths_of(killed),
            reclaim: reclaim.map(|reclaim| reclaim.machine.clone()),
            cgroups: reclaim.map(|reclaim| reclaim.memcgs.clone()).unwrap_or_default(),
            filtered: if probes_allocators { measured.counters.filtered } else { Default::default() },
            older: config.older.filter(|_| probes_allocators),
            touches: self.touches.filter(|_| Quantity::ColdBytes.is_of(class)),
            untraced,
            notes: self.targets.notes.clone(),
            debug_files: None,
            cost: cost_so_far(self.events, measured.counters.nested, measured.cpu, &measured.programs, hits),
        }
    }
}

/// Returns true if the report of this class has trends. Those of blocks are of any age.
fn shows_trends(config: &Config, class: EventClass) -> bool {
    has_trends(class) && !(config.older.is_some() && class.probes_allocators())
}

/// Shows the state of the complete recording. Returns false if intervals could not be recorded.
fn is_complete(path: &Path, status: &Status, observer: &mut dyn Observer) -> bool {
    observer.note(&format!("recorded {}", printable(path)));
    if let Some(gap) = &status.open_gap {
        log::warn!("the last {} intervals are missing in the recording", gap.intervals);
    }
    status.open_gap.is_none()
}

/// Returns the memcgs of OOM kills.
fn killed_cgroups(snapshot: &Snapshot) -> BTreeSet<CgroupId> {
    snapshot.oom_kills.iter().flat_map(|kill| [kill.group, kill.full]).flatten().collect()
}

/// Returns the accounts of a run.
fn account_table(
    config: &Config,
    report: &AccountReport,
    accounts: &RunAccounts,
    profile: &mut Profile,
    finished: &FinishedTrace<'_>,
) -> AccountTable {
    let mut table = match report.needs_stacks() {
        true => report::accounts_of_stacks(profile, &report.keys, |by, profile| config.grouping.label_by(by, profile)),
        false => accounts.table(finished.measured.window.start, finished.measured.duration, finished.tracker),
    };
    table.losses.clone_from(&profile.losses);
    table.notes.extend(profile.run.notes.iter().cloned());
    if table.rows.is_empty() {
        table.notes.push(String::from("no traced thread has allocated or freed a block"));
    }
    table.sort(report.sort);
    table
}

/// Returns the first `top` rows of a table as text.
pub(super) fn text_of_accounts(table: &AccountTable, top: usize) -> String {
    let mut text = Vec::new();
    // Writing to a vector does not fail.
    let _ = report::write_accounts(report::Format::Text, table, top, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes the accounts of a run, and shows the summary. Returns the outputs that could not be written.
fn write_accounts(
    table: &AccountTable,
    top: usize,
    outputs: Outputs,
    observer: &mut dyn Observer,
    summary: Option<&str>,
) -> Vec<NotWritten> {
    let content = |format, _, out: &mut dyn io::Write| report::write_accounts(format, table, top, out);
    let (written, failures) = outputs.fill(&content, &outputs::rescue_directories());
    if let Some(summary) = summary {
        observer.summary(summary);
    }
    for path in written {
        observer.note(&format!("wrote {}", printable(&path)));
    }
    failures
}

/// Writes `profile` to its outputs, and shows its summary. Returns the outputs that could not be written.
fn write(
    config: &Config,
    name: &str,
    outputs: Outputs,
    profile: &Profile,
    observer: &mut dyn Observer,
) -> Result<Vec<NotWritten>, Error> {
    let options = report::Options {
        metric: profile.metric(config.metric),
        by: config.grouping.by,
        top: config.top,
        all_stacks: config.all_stacks,
        subject: name.to_owned(),
    };
    let (written, failures) = outputs.write(profile, &options, &outputs::rescue_directories());
    let mut summary = Vec::new();
    report::write(report::Format::Text, profile, &options, &mut summary)
        .map_err(|error| Error::Failed(format!("cannot write the summary: {error}")))?;
    observer.summary(&String::from_utf8_lossy(&summary));
    for path in written {
        observer.note(&format!("wrote {}", printable(&path)));
    }
    Ok(failures)
}
