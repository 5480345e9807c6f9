//! Reports of recordings: the totals at a moment, or their changes between two moments.

pub(crate) mod difference;
mod threads;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use memtrace_history::facts::{self, RecordedFacts};
use memtrace_history::tags::TagRules;
use memtrace_history::{Book, Moments, Recording, notes_of};
use memtrace_host::procfs::Objects;
use memtrace_host::symbolizer::SymbolizerProcess;
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{
    AccountColumn, EventClass, GroupBy, Losses, Metric, PartKeys, Profile, Requirement, TagFormat, ThreadColumn,
};
use memtrace_object::symbolize::Symbolizer;
use memtrace_report::{AccountTextOptions, DEFAULT_ROWS, Format, SavedReport, ThreadTableOptions};

use self::threads::RecordedThreads;
use crate::run_kit::config::{Moment, Output};
use crate::run_kit::error::{Error, NotWritten};
use crate::run_kit::grouping::Grouping;
use crate::run_kit::observer::Observer;
use crate::run_kit::outcome::Outcome;
use crate::run_kit::outputs::{Content, Outputs};
use crate::run_kit::privileges;
use crate::run_kit::reports::accounts_over_time::AccountsOverTime;
use crate::run_kit::reports::moments::Span;
use crate::run_kit::reports::{BookReports, ReportOptions, accounts, fill, moments, no_facts, unreadable};
use crate::run_kit::text_layout;

/// Configuration of `memtrace report`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// File of the recording.
    pub(crate) path: PathBuf,
    pub(crate) view: View,
    pub(crate) span: Span,
    /// Moments of additional heap profiles, for formats that can show several.
    pub(crate) heap_profiles: Vec<Moment>,
    pub(crate) outputs: Vec<Output>,
    /// Metric to draw; `None` selects the metric of the run.
    pub(crate) metric: Option<Metric>,
    /// Grouping key of stacks; `None` selects the key of the run.
    pub(crate) by: Option<GroupBy>,
    /// Rules for tags; `None` selects the rules of the run.
    pub(crate) tags: Option<TagRules>,
    /// Format of tags that are numbers; `None` selects the format of the run.
    pub(crate) tag_format: Option<TagFormat>,
    /// Number of rows in lists of text reports; `None` if the user has not given it.
    pub(crate) top: Option<usize>,
    /// Number of ended processes with rows of their own. The others are grouped.
    pub(crate) keep_ended: usize,
    /// True if every stack and process is written, even if the report becomes large.
    pub(crate) all_stacks: bool,
}

impl Config {
    /// Returns true if at least one output has a format that `is_shown` accepts.
    fn shows(&self, is_shown: fn(Format) -> bool) -> bool {
        self.outputs.iter().any(|output| is_shown(output.format))
    }

    /// Returns the number of rows in lists.
    fn rows(&self) -> usize {
        self.top.unwrap_or(DEFAULT_ROWS)
    }

    /// Returns the configuration of a report at the end of the recording, with all stacks and without outputs.
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
            tag_format: None,
            top: None,
            keep_ended: LISTED,
            all_stacks: true,
        }
    }
}

/// Contents of a recording that a report shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// Stacks of each event class.
    #[default]
    Stacks,
    /// Accounts, sorted by the column.
    Accounts(AccountColumn),
    /// Usage of threads, in tables sorted by the column.
    Threads(ThreadColumn),
}

/// Number of ended processes with rows of their own in a comparison; the others are grouped.
const LISTED: usize = 1000;

/// Writes the reports of a recording, one for each event class.
///
/// # Errors
///
/// The recording cannot be read, does not have what the configuration needs, or an output cannot be written.
pub(crate) fn run(config: &Config, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    privileges::keep_for_reports();
    privileges::forbid_dumps();
    let recording = open(config)?;
    let reports = reports_of(config, &recording)?;
    match config.view {
        View::Accounts(sort) => return write_accounts(config, &reports, sort, observer),
        View::Threads(sort) => return write_threads(config, &reports, &recording, sort, observer),
        View::Stacks => {}
    }
    let outputs = Outputs::open_for(&recording.header().classes, &config.outputs)?;
    let losses = write_stacks(&reports, outputs.into_iter().collect(), observer)?;
    Ok(Outcome { losses, command: None, complete: !recording.is_salvaged(), none_traced: None, nothing_selected: None })
}

/// Returns the report on `class`; `None` selects the first event class of the recording. `at`: moment of the totals; `None`
/// selects the end.
///
/// # Errors
///
/// The recording cannot be read, or does not have the moment or the class.
pub(crate) fn report_on(path: &Path, at: Option<Moment>, class: Option<EventClass>) -> Result<SavedReport, Error> {
    let span = at.map_or(Span::End, Span::At);
    let config = Config { span, by: Some(GroupBy::Comm), ..Config::whole(path, View::Stacks) };
    let recording = open(&config)?;
    let reports = reports_of(&config, &recording)?;
    let classes = &recording.header().classes;
    let wanted = class.or_else(|| classes.first().copied()).unwrap_or_default();
    let mut report = None;
    let views = reports.views(&symbolizer())?;
    reports.for_each_class(views, BTreeMap::new(), no_facts, |class, profile, options| {
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

fn open(config: &Config) -> Result<Recording, Error> {
    Recording::open(&config.path).map_err(|source| unreadable(&config.path, source))
}

/// Returns the symbolizer for frames without a recorded name. The symbolizer reads the file of an object only if the
/// file has the recorded build ID.
fn symbolizer() -> Symbolizer {
    Symbolizer::new(&TargetFiles, Box::<SymbolizerProcess>::default()).with_reopen(Objects::reopen)
}

/// Returns the reports of a recording.
///
/// # Errors
///
/// The recording cannot be read, or does not have what the configuration needs.
fn reports_of<'a>(config: &Config, book: &'a dyn Book) -> Result<BookReports<'a>, Error> {
    let unreadable = |source| unreadable(&config.path, source);
    if book.intervals().is_empty() {
        return Err(unreadable(memtrace_history::Error::Empty));
    }
    let mut facts = RecordedFacts::new(book.facts(book.end()).map_err(unreadable)?);
    // The reports take the format from the facts.
    facts.add(config.tag_format.map(facts::of_tag_format));
    let mut moments = moments::find(book, &facts, &config.span, &unreadable)?;
    if !config.shows(Format::shows_trends) {
        moments = moments.without_parts();
    }
    let recorded = Grouping::of_recorded(facts.grouping());
    let grouping = match config.view {
        View::Stacks => grouping(config, &recorded)?,
        View::Accounts(_) | View::Threads(_) => Grouping::default(),
    };
    let options = ReportOptions {
        keeps_parts: keeps_parts(&grouping, &recorded)?,
        grouping,
        has_timeline: config.shows(Format::shows_timeline),
        metric: metric(config.metric, &facts, &moments)?,
        heap_profiles: config.shows(Format::shows_moments).then(|| config.heap_profiles.clone()),
        top: config.top,
        keep_ended: config.keep_ended,
        all_stacks: config.all_stacks,
    };
    Ok(BookReports { book, path: config.path.clone(), facts, moments, options })
}

/// Writes the report of each event class. Returns the losses of the class that has lost the most events.
fn write_stacks(
    reports: &BookReports<'_>,
    mut outputs: BTreeMap<EventClass, Outputs>,
    observer: &mut dyn Observer,
) -> Result<Losses, Error> {
    let mut losses = Losses::default();
    let mut failures = Vec::new();
    let names = symbolizer();
    let earlier = reports.earlier_profiles(&names)?;
    reports.for_each_class(reports.views(&names)?, earlier, no_facts, |class, profile, options| {
        if let Some(outputs) = outputs.remove(&class) {
            failures.extend(write(outputs, &profile, &options, reports.options.top.is_some(), observer));
        }
        if profile.losses.total() > losses.total() {
            losses = profile.losses;
        }
    });
    all_written(failures)?;
    Ok(losses)
}

fn write(
    outputs: Outputs,
    profile: &Profile,
    options: &memtrace_report::Options,
    has_number: bool,
    observer: &mut dyn Observer,
) -> Vec<NotWritten> {
    let content: &Content<'_> =
        &|format, to_stdout, out| text_layout::write(format, profile, options, has_number, to_stdout, out);
    fill(outputs, content, observer)
}

fn all_written(failures: Vec<NotWritten>) -> Result<(), Error> {
    if failures.is_empty() { Ok(()) } else { Err(Error::NotWritten(failures)) }
}

/// Writes the accounts of a recording, sorted by a column.
fn write_accounts(
    config: &Config,
    reports: &BookReports<'_>,
    sort: AccountColumn,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let BookReports { book, facts, moments, .. } = reports;
    let keys = facts.account_keys().ok_or_else(|| Error::NotRecorded {
        message: String::from("the recording has no accounts"),
        remedy: String::from("record them: `memtrace accounts --by KEY --record FILE`"),
    })?;
    let outputs = Outputs::open(&config.outputs)?;
    let unreadable = |source| unreadable(&config.path, source);
    let over_time = AccountsOverTime::for_outputs(&config.outputs, *book, moments, &keys).map_err(unreadable)?;
    let table = accounts::table(*book, facts, moments, keys.clone(), notes_of(*book, moments));
    let mut table = table.map_err(unreadable)?;
    sort.sort_rows(&mut table.rows);
    let of_stdout = observer.output_columns();
    let content = |format: Format, is_stdout: bool, out: &mut dyn io::Write| match &over_time {
        Some(over_time) if format.shows_accounts_over_time() => over_time.write(out),
        _ => {
            let options = AccountTextOptions { sort, rows: config.rows(), width: of_stdout.filter(|_| is_stdout) };
            memtrace_report::write_accounts(format, &table, &options, out)
        }
    };
    all_written(fill(outputs, &content, observer))?;
    Ok(Outcome {
        losses: table.losses,
        command: None,
        complete: !book.is_salvaged(),
        none_traced: None,
        nothing_selected: None,
    })
}

/// Writes the usage of threads of a recording.
fn write_threads(
    config: &Config,
    reports: &BookReports<'_>,
    recording: &Recording,
    sort: ThreadColumn,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let BookReports { facts, moments, .. } = reports;
    let unreadable = |source| unreadable(&config.path, source);
    if !recording.has_thread_usage().map_err(unreadable)? {
        return Err(Error::NotRecorded {
            message: String::from("the recording has no usage of threads"),
            remedy: String::from("record it: `memtrace threads --record FILE`"),
        });
    }
    let outputs = Outputs::open(&config.outputs)?;
    let threads = RecordedThreads::read(recording, moments).map_err(unreadable)?;
    let of_stdout = observer.output_columns();
    let content = |format, is_stdout: bool, out: &mut dyn io::Write| {
        let options = ThreadTableOptions { sort, rows: config.rows(), width: of_stdout.filter(|_| is_stdout) };
        threads.write(format, facts.subject(), &options, out)
    };
    let failures = fill(outputs, &content, observer);
    for note in notes_of(recording, moments) {
        observer.note(&note);
    }
    all_written(failures)?;
    let losses = recording.losses(moments.from(), moments.to()).map_err(unreadable)?;
    Ok(Outcome { losses, command: None, complete: !recording.is_salvaged(), none_traced: None, nothing_selected: None })
}

/// Returns the grouping of the report. `recorded`: the grouping of the run.
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
    if config.tag_format.is_some() && !recorded.program_tags {
        return Err(Error::NotRecorded {
            message: String::from("--tag-format is given, but the program has set no tags in this recording"),
            remedy: String::from("remove it, or record tags: `memtrace record --tag-from FUNCTIONS`"),
        });
    }
    if by.is_tag() && tags.is_none() && !program_tags {
        return Err(Error::NotRecorded {
            message: String::from("the recording has no rules for tags that this version can read"),
            remedy: String::from("give a file of rules, as in --tags tags.toml"),
        });
    }
    Ok(Grouping { by, tags: tags.cloned(), program_tags, tag_format: recorded.tag_format })
}

/// Returns true if the report divides processes into parts. `recorded`: the grouping of the run.
fn keeps_parts(grouping: &Grouping, recorded: &Grouping) -> Result<bool, Error> {
    let by = grouping.by;
    if grouping.parts() == PartKeys::NONE {
        return Ok(false);
    }
    if recorded.parts().contains(grouping.parts()) {
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

/// Returns the chosen metric, if the recording has it. The default is growth between two marks, net-growth between two
/// other moments, and otherwise the metric of the run.
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

#[cfg(test)]
mod tests;
