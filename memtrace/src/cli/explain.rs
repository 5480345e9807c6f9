//! `memtrace explain`: its options, configuration and exit code.

use std::io;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use memtrace_model::Pid;
use memtrace_report::Format;

use super::console::{self, Console};
use super::exit::{self, Exit};
use crate::explain::{self, Config};
use crate::options::conflict::ArgConflict;
use crate::options::possible_values;
use crate::options::units;
use crate::options::{HelpFlag, resolve_view};

/// Options of `memtrace explain`.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Analyse this process
    #[arg(short, long, value_name = "PID", value_parser = units::pid, allow_negative_numbers = true)]
    pid: Pid,

    /// Write to this file, as text (.txt) or as JSON (.json); '-' is standard output, the default. May be given more
    /// than once
    #[arg(short, long = "output", value_name = "FILE")]
    outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = explain_formats())]
    format: Option<Format>,

    /// List N names of each kind
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,

    #[command(flatten)]
    help: HelpFlag,
}

/// Runs `memtrace explain`.
pub(super) fn run(args: ExplainArgs, console: &Console) -> Exit {
    let config = match config(args) {
        Ok(config) => config,
        Err(conflict) => return exit::of_conflict(&conflict, console),
    };
    match explain::run(&config) {
        Ok(()) => Exit::Success,
        Err(error) => exit::of_error(&error, console),
    }
}

fn config(args: ExplainArgs) -> Result<Config, ArgConflict> {
    let outputs = resolve_view(args.outputs, args.format, "explanations", Format::OF_EXPLANATIONS)?;
    Ok(Config { pid: args.pid, outputs, top: args.top, colour: console::wants_colour(&io::stdout()) })
}

/// Parses the formats of `memtrace explain`.
fn explain_formats() -> impl TypedValueParser<Value = Format> {
    possible_values::one_of(Format::OF_EXPLANATIONS, |format| {
        let help = if *format == Format::Json { "all data, for scripts" } else { "a page of text" };
        PossibleValue::new(format.name()).help(help)
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser as _;
    use memtrace_model::Pid;

    use super::super::args::{Action, Arguments};
    use super::*;
    use crate::run_kit::config::{Destination, Output};

    fn resolve(words: &[&str]) -> Result<Config, String> {
        let words = ["memtrace", "explain", "--pid", "7"].iter().chain(words);
        let Some(Action::Explain(args)) = Arguments::try_parse_from(words).expect("arguments").action else {
            panic!("not explain")
        };
        config(args).map_err(|conflict| conflict.message)
    }

    #[test]
    fn default_output_is_standard_output() {
        let config = resolve(&[]).expect("a configuration");
        assert_eq!((config.pid, config.top), (Pid(7), 5));
        assert_eq!(config.outputs, [Output { destination: Destination::Stdout, format: Format::Text }]);
        let config = resolve(&["--format", "json"]).expect("a configuration");
        assert_eq!(config.outputs, [Output { destination: Destination::Stdout, format: Format::Json }]);
    }

    #[test]
    fn extension_determines_the_format_and_stacks_are_refused() {
        let file = |name: &str, format| Output { destination: Destination::File(PathBuf::from(name)), format };
        let config = resolve(&["-o", "a.txt", "-o", "a.json"]).expect("a configuration");
        assert_eq!(config.outputs, [file("a.txt", Format::Text), file("a.json", Format::Json)]);
        let refused = Err(String::from("explanations are not written as svg"));
        assert_eq!(resolve(&["-o", "a.svg"]), refused);
        let stdout = Output { destination: Destination::Stdout, format: Format::Text };
        assert_eq!(
            resolve(&["-o", "-", "-o", "a.json"]).expect("a configuration").outputs,
            [stdout, file("a.json", Format::Json)]
        );
    }
}
