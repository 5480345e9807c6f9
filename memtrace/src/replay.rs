//! Reports of recordings: the totals at a moment, or their changes between two moments.

mod accounts;
pub(crate) mod accounts_over_time;
pub(crate) mod difference;
mod heap_profiles;
pub(crate) mod moments;
mod threads;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_history::facts::RecordedFacts;
use memtrace_history::tags::TagRules;
use memtrace_history::{Book, Fact, Moments, Recording, ViewOptions, Views, counts_growth, has_epochs, notes_of};
use memtrace_host::procfs::Objects;
use memtrace_model::{
    AccountColumn, EventClass, GroupBy, Losses, Metric, Names, PartKeys, Profile, Quantity, Requirement, ThreadColumn,
    printable,
};
use memtrace_object::symbolize::Symbolizer;
use memtrace_report::{Format, SavedReport};

use self::accounts_over_time::AccountsOverTime;
use self::threads::RecordedThreads;
use crate::run_kit::config::{Moment, Output};
use crate::run_kit::error::{Error, NotWritten};
use crate::run_kit::grouping::Grouping;
use crate::run_kit::observer::Observer;
use crate::run_kit::outcome::Outcome;
use crate::run_kit::outputs::{self, Content, Outputs};

pub(crate) use self::heap_profiles::MAX_HEAP_PROFILES;
pub(crate) use self::moments::Span;

/// Configuration of `memtrace report`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// File of the recording.
    pub(crate) path: PathBuf,
    pub(crate) view: View,
    pub(crate) span: Span,
    /// Moments of additional heap profiles in formats with several of them.
    pub(crate) heap_profiles: Vec<Moment>,
    pub(crate) outputs: Vec<Output>,
    /// Metric to draw; `None` for that of the run.
    pub(crate) metric: Option<Metric>,
    /// Grouping key of stacks; `None` for that of the run.
    pub(crate) by: Option<GroupBy>,
    /// Rules for tags; `None` for those of the run.
    pub(crate) tags: Option<TagRules>,
    /// Number of sites, and of processes, in texts.
    pub(crate) top: usize,
    /// Number of ended processes with rows of their own.
    pub(crate) keep_ended: usize,
    /// Write every stack and process.
    pub(crate) all_stacks: bool,
    /// A text is shown besides the outputs, as at the end of a run.
    pub(crate) has_summary: bool,
}

impl Config {
    /// Returns true if an output shows something, or the summary of a run.
    fn shows(&self, is_shown: fn(Format) -> bool) -> bool {
        self.has_summary && is_shown(Format::Text) || self.outputs.iter().any(|output| is_shown(output.format))
    }

    /// Returns the configuration of a report at the end, with all rows and without outputs.
    fn whole(path: &Path, view: View) -> Self {
        Self {
            path: path.to_owned(),
            view,
            span: Span::End,
            heap_profiles: Vec::new(),
            outputs: Vec::new(),
            metric: None,
            by: None,
            tags: None,
            top: 0,
            keep_ended: LISTED,
            all_stacks: true,
            has_summary: false,
        }
    }
}

/// Part of a recording that a report shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// Stacks of the event classes.
    #[default]
    Stacks,
    /// Accounts, sorted by this column.
    Accounts(AccountColumn),
    /// Usage of threads. Tables are sorted by this column.
    Threads(ThreadColumn),
}

/// Number of ended processes in a comparison, besides the groups of the others.
const LISTED: usize = 1000;

/// Writes the reports of a recording, one for each event class.
///
/// # Errors
///
/// The recording cannot be read, does not have what the configuration needs, or an output cannot be written.
pub(crate) fn run(config: &Config, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let recording = open(config)?;
    let opened = Opened::new(config, &recording)?;
    match config.view {
        View::Accounts(sort) => return write_accounts(&opened, sort, observer),
        View::Threads(sort) => return write_threads(&opened, &recording, sort, observer),
        View::Stacks => {}
    }
    let outputs = Outputs::open_for(&recording.header().classes, &config.outputs)?;
    let losses = opened.write(outputs.into_iter().collect(), observer)?;
    Ok(Outcome { losses, command: None, complete: !recording.is_salvaged(), none_traced: None })
}

/// Returns the report on one event class of a recording: `class`, or else the first of the trace.
///
/// # Errors
///
/// The recording cannot be read, or does not have the moment or the class.
pub(crate) fn report_on(path: &Path, at: Option<Moment>, class: Option<EventClass>) -> Result<SavedReport, Error> {
    let span = at.map_or(Span::End, Span::At);
    let config = Config { span, by: Some(GroupBy::Comm), ..Config::whole(path, View::Stacks) };
    let recording = open(&config)?;
    let opened = Opened::new(&config, &recording)?;
    let classes = &recording.header().classes;
    let wanted = class.or_else(|| classes.first().copied()).unwrap_or_default();
    let mut report = None;
    let views = opened.views(&symbolizer())?;
    opened.for_each_class(views, BTreeMap::new(), no_facts, |class, profile, options| {
        let memtrace_report::Options { subject, metric, .. } = options;
        if class == wanted {
            report = Some(SavedReport { subject, metric, profile });
        }
    });
    report.ok_or_else(|| Error::NotRecorded {
        message: format!("the recording has no {} events", wanted.name()),
        remedy: format!("its events are {}", classes.iter().map(|class| class.name()).collect::<Vec<_>>().join(", ")),
    })
}

/// Totals at earlier moments, in order of time.
pub(crate) type EarlierProfiles = BTreeMap<EventClass, Vec<(Duration, Profile)>>;

pub(crate) fn unreadable(config: &Config, source: memtrace_history::Error) -> Error {
    Error::Recording { path: config.path.clone(), source }
}

fn open(config: &Config) -> Result<Recording, Error> {
    Recording::open(&config.path).map_err(|source| unreadable(config, source))
}

/// Returns the source of names that are not recorded: the file of an object, if it has the recorded build ID.
fn symbolizer() -> Symbolizer {
    Symbolizer::new().with_reopen(Objects::reopen)
}

/// Returns no facts: a recording has all of them.
const fn no_facts(_: EventClass) -> Vec<Fact> {
    Vec::new()
}

/// A history, and the numbers that its reports show.
pub(crate) struct Opened<'a> {
    pub(crate) config: &'a Config,
    pub(crate) book: &'a dyn Book,
    pub(crate) facts: RecordedFacts,
    pub(crate) moments: Moments,
    pub(crate) grouping: Grouping,
    pub(crate) keeps_parts: bool,
    /// Memory over time is shown.
    pub(crate) has_timeline: bool,
    pub(crate) metric: Option<Metric>,
}

impl<'a> Opened<'a> {
    fn new(config: &'a Config, book: &'a dyn Book) -> Result<Self, Error> {
        let unreadable = |source| unreadable(config, source);
        if book.intervals().is_empty() {
            return Err(unreadable(memtrace_history::Error::Empty));
        }
        let facts = RecordedFacts::new(book.facts(book.end()).map_err(unreadable)?);
        let mut moments = moments::find(book, &facts, &config.span, &unreadable)?;
        if !config.shows(Format::shows_trends) {
            moments = moments.without_parts();
        }
        let recorded = Grouping::of_recorded(facts.grouping());
        let grouping = match config.view {
            View::Stacks => grouping(config, &recorded)?,
            View::Accounts(_) | View::Threads(_) => Grouping::default(),
        };
        let keeps_parts = keeps_parts(&grouping, &recorded)?;
        let metric = metric(config.metric, &facts, &moments)?;
        let has_timeline = config.shows(Format::shows_timeline);
        Ok(Self { config, book, facts, moments, grouping, keeps_parts, has_timeline, metric })
    }

    /// Writes the report of each event class, and returns the losses.
    fn write(&self, mut outputs: BTreeMap<EventClass, Outputs>, observer: &mut dyn Observer) -> Result<Losses, Error> {
        let mut losses = Losses::default();
        let mut failures = Vec::new();
        let names = symbolizer();
        self.for_each_class(
            self.views(&names)?,
            self.earlier_profiles(&names)?,
            no_facts,
            |class, profile, options| {
                if let Some(outputs) = outputs.remove(&class) {
                    failures.extend(write(outputs, &profile, &options, observer));
                }
                if profile.losses.total() > losses.total() {
                    losses = profile.losses;
                }
            },
        );
        all_written(failures)?;
        Ok(losses)
    }

    /// Returns the totals at earlier moments of each event class in order of time, if an output shows them.
    pub(crate) fn earlier_profiles(&self, names: &dyn Names) -> Result<EarlierProfiles, Error> {
        let Self { config, book, facts, moments, grouping, keeps_parts, .. } = self;
        let mut all = EarlierProfiles::new();
        if moments.is_window() || !config.shows(Format::shows_moments) {
            return Ok(all);
        }
        for moment in heap_profiles::moments(*book, moments, &config.heap_profiles) {
            let earlier = moments::find(*book, facts, &Span::At(moment), &|source| unreadable(config, source))?;
            if earlier.to() < moments.to() {
                let (facts, grouping, moments) = (facts.clone(), grouping.clone(), earlier.without_parts());
                let (keeps_parts, has_timeline, metric) = (*keeps_parts, false, None);
                let earlier = Self { facts, moments, grouping, keeps_parts, has_timeline, metric, ..*self };
                earlier.for_each_class(earlier.views(names)?, BTreeMap::new(), no_facts, |class, profile, _| {
                    all.entry(class).or_default().push((profile.shown_time().end, profile));
                });
            }
        }
        for profiles in all.values_mut() {
            profiles.sort_by_key(|(at, _)| *at);
            profiles.dedup_by_key(|(at, _)| *at);
        }
        Ok(all)
    }

    /// Reads what the reports show. Calls without recorded names get those that `names` finds.
    pub(crate) fn views(&self, names: &dyn Names) -> Result<Views<'_>, Error> {
        let options = ViewOptions {
            keeps_parts: self.keeps_parts,
            keep_ended: self.config.keep_ended,
            counts_growth: counts_growth(self.metric),
            has_timeline: self.has_timeline,
        };
        let views = memtrace_history::view(self.book, &self.facts, &self.moments, names, options);
        views.map_err(|source| unreadable(self.config, source))
    }

    /// Passes the report of each event class to `each`. The profiles contain the `earlier` ones. `late` returns facts that are
    /// measured when the stacks of a class are complete.
    pub(crate) fn for_each_class(
        &self,
        mut views: Views<'_>,
        mut earlier: EarlierProfiles,
        mut late: impl FnMut(EventClass) -> Vec<Fact>,
        mut each: impl FnMut(EventClass, Profile, memtrace_report::Options),
    ) {
        let Self { config, book, grouping, metric, .. } = self;
        let mut facts = self.facts.clone();
        for &class in &book.header().classes {
            let earlier = earlier.remove(&class).unwrap_or_default();
            let stacks = views.take(class);
            facts.add(late(class));
            let profile = views.profile(class, stacks, &facts, earlier, |profile| grouping.labels(profile));
            let options = memtrace_report::Options {
                metric: metric_of(&profile, *metric),
                by: grouping.by,
                top: config.top,
                all_stacks: config.all_stacks,
                subject: facts.subject().to_owned(),
            };
            each(class, profile, options);
        }
    }
}

fn write(
    outputs: Outputs,
    profile: &Profile,
    options: &memtrace_report::Options,
    observer: &mut dyn Observer,
) -> Vec<NotWritten> {
    fill(outputs, &|format, _, out| memtrace_report::write(format, profile, options, out), observer)
}

/// Writes the outputs, and returns those that failed.
pub(crate) fn fill(outputs: Outputs, content: &Content<'_>, observer: &mut dyn Observer) -> Vec<NotWritten> {
    // The report can be made again, but the recording may be gone by then.
    let (written, failures) = outputs.fill(content, &outputs::rescue_directories());
    for path in written {
        observer.note(&format!("wrote {}", printable(&path)));
    }
    failures
}

fn all_written(failures: Vec<NotWritten>) -> Result<(), Error> {
    if failures.is_empty() { Ok(()) } else { Err(Error::NotWritten(failures)) }
}

/// Writes the accounts of a recording, sorted by a column.
fn write_accounts(opened: &Opened<'_>, sort: AccountColumn, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let Opened { config, book, facts, moments, .. } = opened;
    let keys = facts.account_keys().ok_or_else(|| Error::NotRecorded {
        message: String::from("the recording has no accounts"),
        remedy: String::from("record them: `memtrace accounts --by KEY --record FILE`"),
    })?;
    let outputs = Outputs::open(&config.outputs)?;
    let unreadable = |source| unreadable(config, source);
    let over_time = AccountsOverTime::for_outputs(&config.outputs, *book, moments, &keys).map_err(unreadable)?;
    let table = accounts::table(*book, facts, moments, keys.clone(), notes_of(*book, moments));
    let mut table = table.map_err(unreadable)?;
    table.sort(sort);
    let content = |format: Format, _, out: &mut dyn io::Write| match &over_time {
        Some(over_time) if format.shows_accounts_over_time() => over_time.write(out),
        _ => memtrace_report::write_accounts(format, &table, config.top, out),
    };
    all_written(fill(outputs, &content, observer))?;
    Ok(Outcome { losses: table.losses, command: None, complete: !book.is_salvaged(), none_traced: None })
}

/// Writes the usage of threads of a recording.
fn write_threads(
    opened: &Opened<'_>,
    recording: &Recording,
    sort: ThreadColumn,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let Opened { config, facts, moments, .. } = opened;
    let unreadable = |source| unreadable(config, source);
    if !recording.has_thread_usage().map_err(unreadable)? {
        return Err(Error::NotRecorded {
            message: String::from("the recording has no usage of threads"),
            remedy: String::from("record it: `memtrace threads --record FILE`"),
        });
    }
    let outputs = Outputs::open(&config.outputs)?;
    let threads = RecordedThreads::read(recording, moments).map_err(unreadable)?;
    let content = |format, _, out: &mut dyn io::Write| threads.write(format, facts.subject(), config.top, sort, out);
    let failures = fill(outputs, &content, observer);
    for note in notes_of(recording, moments) {
        observer.note(&note);
    }
    all_written(failures)?;
    let losses = recording.losses(moments.from(), moments.to()).map_err(unreadable)?;
    Ok(Outcome { losses, command: None, complete: !recording.is_salvaged(), none_traced: None })
}

/// Returns the grouping of the report. `recorded` is that of the run.
fn grouping(config: &Config, recorded: &Grouping) -> Result<Grouping, Error> {
    let by = config.by.unwrap_or(recorded.by);
    let tags = config.tags.as_ref().or(recorded.tags.as_ref()).filter(|_| by.is_tag());
    let program_tags = recorded.program_tags && by.is_tag();
    if program_tags && tags.is_some_and(TagRules::tests_threads) {
        return Err(Error::NotRecorded {
            message: String::from("the rules for tags name threads, but the recording has tags that the program set"),
            remedy: String::from("remove `thread` from the rules"),
        });
    }
    if !program_tags && tags.is_some_and(TagRules::only_name_numbers) {
        return Err(Error::NotRecorded {
            message: String::from("the rules only name tags by number, but the program has set none in this recording"),
            remedy: String::from("give rules with function, object, source or thread"),
        });
    }
    if by.is_tag() && tags.is_none() && !program_tags {
        return Err(Error::NotRecorded {
            message: String::from("the recording has no rules for tags that this version can read"),
            remedy: String::from("give a file of rules, as in --tags tags.toml"),
        });
    }
    Ok(Grouping { by, tags: tags.cloned(), program_tags })
}

/// Returns true if the report has the parts of processes, and false if it has whole processes. `recorded` is the grouping of
/// the run.
fn keeps_parts(grouping: &Grouping, recorded: &Grouping) -> Result<bool, Error> {
    let by = grouping.by;
    if grouping.parts() == PartKeys::NONE {
        return Ok(false);
    }
    if grouping.parts() == recorded.parts() {
        return Ok(true);
    }
    if by.is_tag() {
        return Err(Error::NotRecorded {
            message: String::from("the rules for tags name threads, which the recording does not distinguish"),
            remedy: String::from(
                "remove `thread` from the rules, or record with these rules: `memtrace record --tags FILE`",
            ),
        });
    }
    Err(Error::NotRecorded {
        message: format!("the recording does not distinguish {}", by.plural()),
        remedy: format!("remove --by, or record with it: `memtrace record --by {}`", by.name()),
    })
}

/// Returns the chosen metric, or the metric of the run.
fn metric(chosen: Option<Metric>, facts: &RecordedFacts, moments: &Moments) -> Result<Option<Metric>, Error> {
    let is_at_end = moments.is_at_end();
    let needs_peaks = |metric: &Metric| metric.needs(Requirement::Peaks);
    let needs_touches = |metric: &Metric| metric.needs(Requirement::Touches);
    match chosen {
        Some(chosen) if needs_peaks(&chosen) && !facts.metric().is_some_and(|metric| needs_peaks(&metric)) => {
            Err(Error::NotRecorded {
                message: String::from("the recording does not have the peaks of processes"),
                remedy: String::from("use another metric, or record with --metric peak-bytes"),
            })
        }
        Some(chosen) if needs_touches(&chosen) && !facts.has_touches() => Err(Error::NotRecorded {
            message: String::from("the recording does not have hot and cold bytes"),
            remedy: String::from("use another metric, or record with --cold-after, as in --cold-after 10s"),
        }),
        Some(chosen) if (needs_peaks(&chosen) || needs_touches(&chosen)) && !is_at_end => Err(Error::NotRecorded {
            message: format!("{} is known at the end of a complete recording only", chosen.name()),
            remedy: String::from("leave out --at, --from, --to, --between and --peak, or use another metric"),
        }),
        Some(Metric::NetGrowth) if !moments.is_window() => Err(Error::NotRecorded {
            message: String::from("--metric net-growth needs two moments"),
            remedy: String::from("add --from and --to, as in --from +10s --to -5s"),
        }),
        Some(Metric::Growth) if moments.first_epoch().is_none() => Err(Error::NotRecorded {
            message: String::from(
                "--metric growth needs two marks: at other moments, the ages of blocks are not recorded",
            ),
            remedy: String::from("add --between MARK MARK, or use --metric net-growth with --from and --to"),
        }),
        Some(metric) => Ok(Some(metric)),
        None if moments.first_epoch().is_some() => Ok(Some(Metric::Growth)),
        None if moments.is_window() => Ok(Some(Metric::NetGrowth)),
        None => Ok(facts.metric().filter(|metric| is_at_end || !(needs_peaks(metric) || needs_touches(metric)))),
    }
}

/// Returns the metric of a profile: the growth of live memory in place of live memory in a window.
fn metric_of(profile: &Profile, metric: Option<Metric>) -> Metric {
    match metric {
        Some(Metric::Growth) if has_epochs(profile.run.class) => Metric::Growth,
        Some(Metric::Growth | Metric::NetGrowth | Metric::LiveBytes | Metric::LiveCount)
            if profile.run.window.is_some() && Quantity::LiveBytes.is_of(profile.run.class) =>
        {
            Metric::NetGrowth
        }
        metric => profile.metric(metric),
    }
}

#[cfg(test)]
mod tests;
