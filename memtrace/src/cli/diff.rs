//! `memtrace diff`: its configuration and exit code.

use memtrace_report::Format;

use super::args::DiffArgs;
use super::conflict::ArgConflict;
use super::console::Console;
use super::exit::{self, Exit};
use super::outputs;
use crate::replay::difference::{self, Config};

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
    let outputs = outputs::resolve_view(args.outputs, args.format, "differences", Format::OF_DIFFERENCES)?;
    Ok(Config { before, after, events, metric, outputs, top })
}
