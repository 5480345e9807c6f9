//! `memtrace diff`: its options, configuration and exit code.

use std::path::PathBuf;

use clap::Args;
use memtrace_model::{EventClass, Metric};
use memtrace_report::Format;

use super::conflict::ArgConflict;
use super::console::Console;
use super::exit::{self, Exit};
use super::options::{HelpFlag, resolve_view};
use super::possible_values;
use super::units;
use crate::replay::difference::{self, Config, Source};

/// Options of `memtrace diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The first report: a JSON report, a recording, or a moment of a recording, as in run.memtrace@+90s
    #[arg(value_name = "BEFORE", value_parser = units::source)]
    before: Source,

    /// The second report
    #[arg(value_name = "AFTER", value_parser = units::source)]
    after: Source,

    /// Compare this metric [default: that of the reports]
    #[arg(short, long, value_parser = possible_values::metrics(), hide_possible_values = true)]
    metric: Option<Metric>,

    /// Compare this event class of recordings [default: the first of the trace]
    #[arg(long, value_name = "CLASS", value_parser = possible_values::event_classes(), hide_possible_values = true)]
    events: Option<EventClass>,

    /// Write to this file, as a differential flame graph (.svg), folded stacks with two values (.folded), text (.txt)
    /// or JSON (.json); '-' is standard output, the default. May be given more than once
    #[arg(short, long = "output", value_name = "FILE")]
    outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = possible_values::difference_formats(), hide_possible_values = true)]
    format: Option<Format>,

    /// List the N sites with the greatest change
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    #[command(flatten)]
    help: HelpFlag,
}

/// Runs `memtrace diff`.
pub(super) fn run(args: DiffArgs, console: &Console) -> Exit {
    let config = match config(args) {
        Ok(config) => config,
        Err(conflict) => return exit::of_conflict(&conflict, console),
    };
    match difference::run(&config) {
        Ok(()) => Exit::Success,
        Err(error) => exit::of_error(&error, console),
    }
}

fn config(args: DiffArgs) -> Result<Config, ArgConflict> {
    let DiffArgs { before, after, metric, events, top, .. } = args;
    let outputs = resolve_view(args.outputs, args.format, "differences", Format::OF_DIFFERENCES)?;
    Ok(Config { before, after, events, metric, outputs, top })
}
