//! `memtrace explain`: its configuration and exit code.

use std::io;

use memtrace_report::Format;

use super::args::ExplainArgs;
use super::conflict::ArgConflict;
use super::console::{self, Console};
use super::exit::{self, Exit};
use super::outputs;
use crate::explain::{self, Config};

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
    let outputs = outputs::resolve_view(args.outputs, args.format, "explanations", Format::OF_EXPLANATIONS)?;
    Ok(Config { pid: args.pid, outputs, top: args.top, colour: console::wants_colour(&io::stdout()) })
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
