//! `memtrace diff`: its options, configuration and exit code.

use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser;
use memtrace_model::{EventClass, Metric};
use memtrace_report::Format;

use super::console::Console;
use super::exit::{self, Exit};
use crate::options::conflict::ArgConflict;
use crate::options::possible_values;
use crate::options::units;
use crate::options::{HelpFlag, resolve_view};
use crate::replay::difference::{self, Config, Source};

/// Options of `memtrace diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The first report: a JSON report, a recording, or a moment of a recording, as in run.memtrace@+90s
    #[arg(value_name = "BEFORE", value_parser = source)]
    before: Source,

    /// The second report
    #[arg(value_name = "AFTER", value_parser = source)]
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
    #[arg(long, value_parser = difference_formats(), hide_possible_values = true)]
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

/// Parses the formats of `memtrace diff`.
fn difference_formats() -> impl TypedValueParser<Value = Format> {
    possible_values::report_formats(Format::OF_DIFFERENCES)
}

/// Parses a report to compare: a file, or a moment of a recording as in `run.memtrace@+90s`.
fn source(text: &str) -> Result<Source, String> {
    let whole = || Source { name: text.to_owned(), path: text.into(), at: None };
    let Some((path, time)) = text.rsplit_once('@').filter(|(path, _)| !path.is_empty()) else { return Ok(whole()) };
    match units::moment(time) {
        Ok(at) => Ok(Source { path: path.into(), at: Some(at), ..whole() }),
        Err(reason) if path.ends_with(".memtrace") => Err(reason),
        // The `@` belongs to the name of the file.
        Err(_) => Ok(whole()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::run_kit::config::Moment;

    #[test]
    fn report_to_compare_can_have_a_moment() {
        let parsed = |text| source(text).map(|source| (source.path.to_string_lossy().into_owned(), source.at));
        assert_eq!(parsed("a.json"), Ok((String::from("a.json"), None)));
        let at = Some(Moment::AfterStart(Duration::from_secs(90)));
        assert_eq!(parsed("run.memtrace@+90s"), Ok((String::from("run.memtrace"), at)));
        assert_eq!(parsed("user@host.json"), Ok((String::from("user@host.json"), None)));
        assert!(parsed("run.memtrace@soon").is_err());
        assert_eq!(parsed("@+90s"), Ok((String::from("@+90s"), None)));
    }
}
