//! The arguments of the commands that do not trace.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use memtrace_model::{EventClass, GroupBy, Metric, Pid};
use memtrace_report::Format;

use super::possible_values;
use crate::cli::units;
use crate::replay::difference::Source;
use crate::run_kit::config::Moment;

#[derive(Debug, Args)]
pub(in crate::cli) struct DoctorArgs {
    /// Examine this process too
    #[arg(short, long, value_name = "PID", value_parser = units::pid)]
    pub(in crate::cli) pid: Option<Pid>,

    /// Write JSON
    #[arg(long)]
    pub(in crate::cli) json: bool,

    #[command(flatten)]
    pub(in crate::cli) help: HelpFlag,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ExplainArgs {
    /// Analyse this process
    #[arg(short, long, value_name = "PID", value_parser = units::pid, allow_negative_numbers = true)]
    pub(in crate::cli) pid: Pid,

    /// Write to this file, as text (.txt) or as JSON (.json); '-' is standard output, the default. May be given more
    /// than once
    #[arg(short, long = "output", value_name = "FILE")]
    pub(in crate::cli) outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = possible_values::explain_formats())]
    pub(in crate::cli) format: Option<Format>,

    /// List N names of each kind
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(in crate::cli) top: usize,

    #[command(flatten)]
    pub(in crate::cli) help: HelpFlag,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct MarkArgs {
    /// Text of the mark, at most 200 bytes; if the recording has it already, #2 is appended, or the next number
    pub(in crate::cli) text: String,

    /// Choose the recording by its socket; required if several are running
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) socket: Option<PathBuf>,

    #[command(flatten)]
    pub(in crate::cli) help: HelpFlag,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ResetArgs {
    /// Choose the trace by its socket; required if several are running
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) socket: Option<PathBuf>,

    #[command(flatten)]
    pub(in crate::cli) help: HelpFlag,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ReportArgs {
    /// The recording, which may still be written
    #[arg(value_name = "FILE")]
    pub(in crate::cli) file: PathBuf,

    /// Show the totals at this time instead of those at the end: +90s after the start, -5m before the end, or
    /// 2026-11-22T21:05:00Z
    #[arg(
        long,
        value_name = "TIME",
        value_parser = units::moment,
        allow_hyphen_values = true,
        conflicts_with_all = ["from", "to", "between", "peak"]
    )]
    pub(in crate::cli) at: Option<Moment>,

    /// Show the changes from this time on [default: from the start]
    #[arg(long, value_name = "TIME", value_parser = units::moment, allow_hyphen_values = true)]
    pub(in crate::cli) from: Option<Moment>,

    /// Show the changes up to this time [default: to the end]
    #[arg(long, value_name = "TIME", value_parser = units::moment, allow_hyphen_values = true)]
    pub(in crate::cli) to: Option<Moment>,

    /// Show what was allocated between two marks, and is live at the second one
    #[arg(long, value_names = ["MARK", "MARK"], num_args = 2, conflicts_with_all = ["from", "to", "peak"])]
    pub(in crate::cli) between: Vec<String>,

    /// Show the totals at the end of the interval with the most live bytes
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(in crate::cli) peak: bool,

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
    pub(in crate::cli) heap_profiles: Vec<Moment>,

    /// Show this part of the recording
    #[arg(long, value_name = "VIEW", value_enum, default_value_t)]
    pub(in crate::cli) view: RecordingView,

    /// Sort accounts or threads by this column, the largest first [default: current; net for threads]
    #[arg(long, value_name = "COLUMN")]
    pub(in crate::cli) sort: Option<String>,

    /// Write to this file; '-' is standard output, the default. May be given more than once. The extension determines
    /// the format: .svg, .html, .folded, .json, .txt, .pb.gz (pprof), .pftrace (Perfetto), .firefox.json, .speedscope.json or .heaptrack.zst; for accounts
    /// .txt, .csv, .json or .pftrace; for threads .svg, .txt, .csv, .json or .pftrace
    #[arg(short, long = "output", value_name = "FILE")]
    pub(in crate::cli) outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = possible_values::formats())]
    pub(in crate::cli) format: Option<Format>,

    /// Draw this metric, and rank stacks by it [default: that of the trace; net-growth between two times]
    #[arg(short, long, value_parser = possible_values::metrics())]
    pub(in crate::cli) metric: Option<Metric>,

    /// Group stacks by this key [default: that of the trace]
    #[arg(long, value_name = "KEY", value_parser = possible_values::group_keys())]
    pub(in crate::cli) by: Option<GroupBy>,

    /// Group stacks by the tags of the rules in this file
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) tags: Option<PathBuf>,

    /// List N sites and N processes, or N accounts, in texts [default: 10; 40 accounts]
    #[arg(long, value_name = "N")]
    pub(in crate::cli) top: Option<usize>,

    /// Keep separate entries for the N largest processes that have ended
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(in crate::cli) keep_ended: usize,

    /// Write every stack and process
    #[arg(long)]
    pub(in crate::cli) all_stacks: bool,

    #[command(flatten)]
    pub(in crate::cli) help: HelpFlag,
}

/// Part of a recording that a report shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum RecordingView {
    /// Call stacks
    #[default]
    Stacks,
    /// Accounts, of `memtrace accounts --record`
    Accounts,
    /// Usage of threads, of `memtrace threads --record`
    Threads,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DiffArgs {
    /// The first report: a JSON report, a recording, or a moment of a recording, as in run.memtrace@+90s
    #[arg(value_name = "BEFORE", value_parser = units::source)]
    pub(in crate::cli) before: Source,

    /// The second report
    #[arg(value_name = "AFTER", value_parser = units::source)]
    pub(in crate::cli) after: Source,

    /// Compare this metric [default: that of the reports]
    #[arg(short, long, value_parser = possible_values::metrics(), hide_possible_values = true)]
    pub(in crate::cli) metric: Option<Metric>,

    /// Compare this event class of recordings [default: the first of the trace]
    #[arg(long, value_name = "CLASS", value_parser = possible_values::event_classes(), hide_possible_values = true)]
    pub(in crate::cli) events: Option<EventClass>,

    /// Write to this file, as a differential flame graph (.svg), folded stacks with two values (.folded), text (.txt)
    /// or JSON (.json); '-' is standard output, the default. May be given more than once
    #[arg(short, long = "output", value_name = "FILE")]
    pub(in crate::cli) outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = possible_values::difference_formats(), hide_possible_values = true)]
    pub(in crate::cli) format: Option<Format>,

    /// List the N sites with the greatest change
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(in crate::cli) top: usize,

    #[command(flatten)]
    pub(in crate::cli) help: HelpFlag,
}

/// The help flag of commands without headings.
#[derive(Debug, Args)]
pub(in crate::cli) struct HelpFlag {
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}
