//! `memtrace report`: its options, configuration and exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use memtrace_model::{AccountColumn, GroupBy, Metric, TagFormat, ThreadColumn};
use memtrace_report::Format;

use super::console::Console;
use super::exit;
use super::terminal::Terminal;
use super::{accounts, logging};
use crate::options::conflict::ArgConflict;
use crate::options::possible_values;
use crate::options::units;
use crate::options::{DEFAULT_KEEP_ENDED, HelpFlag, check_heap_profiles, resolve_tags, resolve_view};
use crate::replay::{self, Config, View};
use crate::run_kit::config::Moment;
use crate::run_kit::reports::moments::Span;

/// Options of `memtrace report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The recording, which may still be written
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Show the totals at this time instead of those at the end: +90s after the start, -5m before the end, or
    /// 2026-11-22T21:05:00Z
    #[arg(
        long,
        value_name = "TIME",
        value_parser = units::moment,
        allow_hyphen_values = true,
        conflicts_with_all = ["from", "to", "between", "peak"]
    )]
    at: Option<Moment>,

    /// Show the changes from this time on [default: from the start]
    #[arg(long, value_name = "TIME", value_parser = units::moment, allow_hyphen_values = true)]
    from: Option<Moment>,

    /// Show the changes up to this time [default: to the end]
    #[arg(long, value_name = "TIME", value_parser = units::moment, allow_hyphen_values = true)]
    to: Option<Moment>,

    /// Show what was allocated between two marks, and is live at the second one
    #[arg(long, value_names = ["MARK", "MARK"], num_args = 2, conflicts_with_all = ["from", "to", "peak"])]
    between: Vec<String>,

    /// Show the totals at the end of the interval with the most live bytes
    #[arg(long, conflicts_with_all = ["from", "to"])]
    peak: bool,

    /// Add a heap profile of this time to Perfetto traces, in addition to those of marks and of the end
    ///
    /// Perfetto shows the differences between consecutive heap profiles. May be given more than once; at most 32 are written.
    #[arg(
        long = "heap-profile",
        value_name = "TIME",
        value_parser = units::moment,
        allow_hyphen_values = true,
        conflicts_with_all = ["from", "to", "between"]
    )]
    heap_profiles: Vec<Moment>,

    /// Show this part of the recording
    #[arg(long, value_name = "VIEW", value_enum, default_value_t)]
    view: RecordingView,

    /// Sort accounts or threads by this column, the largest first [default: current; net for threads]
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,

    /// Write to this file; '-' is standard output, the default. May be given more than once. The extension determines
    /// the format: .svg, .html, .folded, .json, .txt, .pb.gz (pprof), .pftrace (Perfetto), .firefox.json, .speedscope.json or .heaptrack.zst; for accounts
    /// .txt, .csv, .json or .pftrace; for threads .svg, .txt, .csv, .json or .pftrace
    #[arg(short, long = "output", value_name = "FILE")]
    outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = possible_values::report_formats(Format::ALL))]
    format: Option<Format>,

    /// Draw this metric, and rank stacks by it [default: that of the trace; net-growth between two times]
    #[arg(short, long, value_parser = possible_values::metrics())]
    metric: Option<Metric>,

    /// Group stacks by this key [default: that of the trace]
    #[arg(long, value_name = "KEY", value_parser = possible_values::group_keys())]
    by: Option<GroupBy>,

    /// Group stacks by the tags of the rules in this file
    #[arg(long, value_name = "FILE")]
    tags: Option<PathBuf>,

    /// Write tags that are numbers in this format [default: that of the trace]
    #[arg(long, value_name = "FORMAT", value_parser = possible_values::tag_formats())]
    tag_format: Option<TagFormat>,

    /// List N sites and N processes, or N accounts, in texts [default: sites of at least 1 % that fit in the terminal, and
    /// 10 processes; 40 accounts]
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Keep separate entries for the N largest processes that have ended
    #[arg(long, value_name = "N", default_value_t = DEFAULT_KEEP_ENDED)]
    keep_ended: usize,

    /// Write every stack and process
    #[arg(long)]
    all_stacks: bool,

    #[command(flatten)]
    help: HelpFlag,
}

/// Part of a recording that a report shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum RecordingView {
    /// Call stacks
    #[default]
    Stacks,
    /// Accounts, of `memtrace accounts --record`
    Accounts,
    /// Usage of threads, of `memtrace threads --record`
    Threads,
}

/// Runs `memtrace report`.
pub(super) fn run(args: ReportArgs, console: &Console) -> ExitCode {
    let config = match config(args) {
        Ok(config) => config,
        Err(conflict) => return exit::of_conflict(&conflict, console).into(),
    };
    logging::start(console, false, 0);
    match replay::run(&config, &mut Terminal::new(console.clone(), false, false)) {
        Ok(outcome) => exit::of_outcome(&outcome, false, console).into(),
        Err(error) => exit::of_error(&error, console).into(),
    }
}

fn config(args: ReportArgs) -> Result<Config, ArgConflict> {
    let view = view(&args)?;
    let span = match (args.at, args.from, args.to, <[String; 2]>::try_from(args.between)) {
        (Some(at), ..) => Span::At(at),
        (None, None, None, Ok([from, to])) => Span::Marks(from, to),
        (None, None, None, Err(_)) if args.peak => Span::Peak,
        (None, None, None, Err(_)) => Span::End,
        (None, from, to, _) => Span::Window(from, to),
    };
    let (by, tags) = resolve_tags(args.tags.as_deref(), args.by)?;
    let (outputs, default_top) = match view {
        View::Stacks => (resolve_view(args.outputs, args.format, "stacks", Format::OF_STACKS)?, None),
        View::Accounts(_) => {
            (resolve_view(args.outputs, args.format, "accounts", Format::OF_ACCOUNTS)?, Some(accounts::DEFAULT_TOP))
        }
        View::Threads(_) => {
            (resolve_view(args.outputs, args.format, "threads", Format::OF_THREADS)?, Some(accounts::DEFAULT_TOP))
        }
    };
    check_heap_profiles(&args.heap_profiles, &outputs)?;
    Ok(Config {
        path: args.file,
        view,
        span,
        heap_profiles: args.heap_profiles,
        outputs,
        metric: args.metric,
        by,
        tags,
        tag_format: args.tag_format,
        top: args.top.or(default_top),
        keep_ended: args.keep_ended,
        all_stacks: args.all_stacks,
    })
}

fn view(args: &ReportArgs) -> Result<View, ArgConflict> {
    let of_stacks = [
        ("--metric", args.metric.is_some()),
        ("--by", args.by.is_some()),
        ("--tags", args.tags.is_some()),
        ("--tag-format", args.tag_format.is_some()),
        ("--all-stacks", args.all_stacks),
    ];
    let of_stacks = of_stacks.iter().find(|(_, is_given)| *is_given).map(|(option, _)| *option);
    match (args.view, of_stacks, args.sort.as_deref()) {
        (RecordingView::Stacks, _, None) => Ok(View::Stacks),
        (RecordingView::Stacks, _, Some(_)) => Err(ArgConflict::new(
            "--sort is for accounts and threads",
            "remove it, or add --view accounts or --view threads",
        )),
        (RecordingView::Accounts, Some(option), _) => Err(ArgConflict::new(
            format!("{option} does not apply to accounts, whose keys are those of the trace"),
            "remove it",
        )),
        (RecordingView::Threads, Some(option), _) => {
            Err(ArgConflict::new(format!("{option} does not apply to threads, which have no stacks"), "remove it"))
        }
        (RecordingView::Accounts, None, name) => {
            column(AccountColumn::ALL, name, AccountColumn::name).map(View::Accounts)
        }
        (RecordingView::Threads, None, name) => column(ThreadColumn::ALL, name, ThreadColumn::name).map(View::Threads),
    }
}

/// Returns the column called `name`. Without a name, returns the default column.
fn column<C: Copy + Default>(
    all: &[C],
    name: Option<&str>,
    name_of: impl Fn(C) -> &'static str,
) -> Result<C, ArgConflict> {
    let Some(name) = name else { return Ok(C::default()) };
    all.iter().copied().find(|column| name_of(*column) == name).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|column| name_of(*column)).collect();
        ArgConflict::new(format!("there is no column '{name}'"), format!("give one of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use clap::Parser as _;
    use memtrace_model::{GroupBy, Metric};

    use super::super::args::{Action, Arguments};
    use super::*;
    use crate::run_kit::config::Moment;
    use crate::run_kit::config::{Destination, Output};

    fn parse(line: &str) -> Result<Config, String> {
        let words = ["memtrace", "report"].into_iter().chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        let Some(Action::Report(args)) = arguments.action else { panic!("not report") };
        config(*args).map_err(|conflict| conflict.message)
    }

    #[test]
    fn totals_at_the_end_go_to_standard_output_by_default() {
        let expected = Config {
            path: PathBuf::from("run.memtrace"),
            view: View::Stacks,
            span: Span::End,
            outputs: vec![Output { destination: Destination::Stdout, format: Format::Text }],
            metric: None,
            by: None,
            tags: None,
            tag_format: None,
            top: None,
            keep_ended: 1000,
            all_stacks: false,
            heap_profiles: Vec::new(),
        };
        assert_eq!(parse("run.memtrace"), Ok(expected));
    }

    #[test]
    fn every_argument_reaches_the_configuration() {
        let expected = Config {
            path: PathBuf::from("a"),
            view: View::Stacks,
            span: Span::Window(
                Some(Moment::AfterStart(Duration::from_secs(90))),
                Some(Moment::BeforeEnd(Duration::from_secs(300))),
            ),
            outputs: vec![Output { destination: Destination::File("b.svg".into()), format: Format::Svg }],
            metric: Some(Metric::AllocBytes),
            by: Some(GroupBy::Thread),
            tags: None,
            tag_format: Some(TagFormat::Hex),
            top: Some(3),
            keep_ended: 0,
            all_stacks: true,
            heap_profiles: Vec::new(),
        };
        let line = "a --from +90s --to -5m -o b.svg -m alloc-bytes --by thread --tag-format hex --top 3 --keep-ended 0 \
                    --all-stacks";
        assert_eq!(parse(line), Ok(expected));
    }

    #[test]
    fn accounts_have_options_of_their_own() {
        let config = parse("a --view accounts --sort high -o b.csv").unwrap();
        assert_eq!((config.view, config.top), (View::Accounts(AccountColumn::High), Some(accounts::DEFAULT_TOP)));
        let output = Output { destination: Destination::File("b.csv".into()), format: Format::Csv };
        assert_eq!(config.outputs, [output]);
        for view in ["accounts", "threads"] {
            let output = Output { destination: Destination::Stdout, format: Format::Csv };
            assert_eq!(parse(&format!("a --view {view} --format csv")).unwrap().outputs, [output], "{view}");
        }
        for (line, message) in [
            ("a --sort high", "--sort is for accounts"),
            ("a --view accounts --sort size", "there is no column 'size'"),
            ("a --view threads --by thread", "--by does not apply to threads"),
            ("a --view accounts --by thread", "--by does not apply to accounts"),
            ("a --view accounts --tag-format hex", "--tag-format does not apply to accounts"),
            ("a --view accounts -m peak-bytes", "--metric does not apply to accounts"),
            ("a --view accounts -o b.svg", "accounts are not written as svg"),
            ("a --format csv", "stacks are not written as csv"),
        ] {
            let refused = parse(line).expect_err(line);
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }

    #[test]
    fn moments_are_of_one_kind() {
        let span = |line: &str| parse(line).map(|config| config.span);
        assert_eq!(span("a --at -1s"), Ok(Span::At(Moment::BeforeEnd(Duration::from_secs(1)))));
        assert_eq!(span("a --to +1s"), Ok(Span::Window(None, Some(Moment::AfterStart(Duration::from_secs(1))))));
        assert_eq!(span("a --peak"), Ok(Span::Peak));
        assert_eq!(span("a --between b c"), Ok(Span::Marks("b".into(), "c".into())));
        for line in [
            "a --at +1s --from +2s",
            "a --between b c --to +1s",
            "a --at +1s --between b c",
            "a --between b",
            "a --peak --at +1s",
            "a --peak --to -1s",
        ] {
            assert!(span(line).is_err(), "{line}");
        }
    }
}
