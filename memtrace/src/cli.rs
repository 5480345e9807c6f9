//! Command line: arguments to the configuration of a command, messages to the terminal, and exit codes.

mod accounts;
mod activity;
mod args;
mod arguments_of_functions;
mod conflict;
mod console;
mod diff;
mod doctor;
mod events;
mod exit;
mod explain;
mod filters;
mod heap_profiles;
mod help;
mod hooks;
mod logging;
mod man;
mod mark;
mod outputs;
mod program_tags;
mod progress;
mod recording;
mod reference;
mod report;
mod resolve;
mod spans;
mod tag_functions;
mod tags;
mod target;
mod terminal;
mod threads;
mod units;
mod working_set;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use memtrace_model::EventClass;

use self::args::{Action, Arguments, ThreadsArgs, TraceArgs, WorkingSetArgs};
use self::conflict::ArgConflict;
use self::console::Console;
use self::exit::Exit;
use self::terminal::Terminal;
use crate::run_kit::error::Error;
use crate::targets::select::Target;
use crate::trace::config::Config;

/// Returns a page in Markdown with all commands and options.
#[must_use]
pub fn reference() -> String {
    reference::text()
}

/// Runs memtrace with `arguments`, of which the first is its own name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let console = Console::stderr();
    let arguments = arguments.into_iter().collect::<Vec<_>>();
    if arguments.len() <= 1 {
        console.line(help::INTRODUCTION);
        return Exit::Usage.into();
    }
    if asks_for_short_help(&arguments)
        && let Err(help) = help::short(Arguments::command()).try_get_matches_from(&arguments)
    {
        return refuse(help, &console).into();
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(refusal) => return refuse(refusal, &console).into(),
    };
    match arguments.action {
        None => trace(arguments.trace, &console),
        Some(Action::Record(args)) => trace(recording::with_default(*args), &console),
        Some(Action::Faults(args)) => trace_only(*args, EventClass::Fault, &console),
        Some(Action::Reclaim(args)) => trace_only(*args, EventClass::Reclaim, &console),
        Some(Action::Maps(args)) => trace_only(*args, EventClass::Map, &console),
        Some(Action::Accounts(args)) => {
            let (quiet, verbose) = (args.trace.quiet, args.trace.verbose);
            run_trace(accounts::config(*args, console.is_terminal()), quiet, verbose, &console)
        }
        Some(Action::Threads(args)) => monitor_threads(*args, &console),
        Some(Action::Wss(args)) => measure_working_sets(*args, &console).into(),
        Some(Action::Doctor(args)) => {
            let findings = crate::doctor::examine(args.pid);
            let colour = console::wants_colour(&io::stdout());
            let text = if args.json { doctor::json(&findings) } else { doctor::text(&findings, colour) };
            print(text.as_bytes(), exit::of_findings(&findings), &console).into()
        }
        Some(Action::Explain(args)) => explain::run(args, &console).into(),
        Some(Action::Mark(args)) => match mark::run(&args, &console) {
            Ok(line) => print(line.as_bytes(), Exit::Success, &console).into(),
            Err(exit) => exit.into(),
        },
        Some(Action::Reset(args)) => match mark::reset(&args, &console) {
            Ok(line) => print(line.as_bytes(), Exit::Success, &console).into(),
            Err(exit) => exit.into(),
        },
        Some(Action::Report(args)) => report::run(*args, &console),
        Some(Action::Diff(args)) => diff::run(args, &console).into(),
        Some(Action::Completions { shell, .. }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "memtrace", &mut script);
            print(&script, Exit::Success, &console).into()
        }
        Some(Action::Man { .. }) => {
            let mut page = Vec::new();
            match man::write(&Arguments::command(), &mut page) {
                Ok(()) => print(&page, Exit::Success, &console).into(),
                Err(error) => failed(&error, &console).into(),
            }
        }
    }
}

/// Returns true for `-h`, also together with other short options, as in `-qh`.
fn asks_for_short_help(arguments: &[OsString]) -> bool {
    let is_help = |argument: &str| argument.starts_with('-') && !argument.starts_with("--") && argument.ends_with('h');
    let options = arguments.iter().take_while(|argument| *argument != "--");
    options.filter_map(|argument| argument.to_str()).any(is_help)
}

/// Traces events of `class` alone.
fn trace_only(args: TraceArgs, class: EventClass, console: &Console) -> ExitCode {
    match events::only(args, class) {
        Ok(args) => trace(args, console),
        Err(conflict) => exit::of_conflict(&conflict, console).into(),
    }
}

fn trace(args: TraceArgs, console: &Console) -> ExitCode {
    let (quiet, verbose) = (args.quiet, args.verbose);
    run_trace(resolve::config(args), quiet, verbose, console)
}

fn run_trace(config: Result<Config, ArgConflict>, quiet: bool, verbose: u8, console: &Console) -> ExitCode {
    let config = match config {
        Ok(config) => config,
        Err(conflict) => return exit::of_conflict(&conflict, console).into(),
    };
    logging::start(console, quiet, verbose);
    let pass = matches!(config.target, Target::Command { pass_exit_code: true, .. });
    let has_command = matches!(config.target, Target::Command { .. });
    let outcome = crate::trace::run(&config, &mut Terminal::new(console.clone(), quiet, has_command));
    console.clear();
    match outcome {
        Ok(outcome) => {
            if let Some(process) = &outcome.none_traced {
                exit::of_error(&Error::NoneTraced(process.clone()), console);
            }
            exit::code_of(&outcome, pass).into()
        }
        Err(error) => exit::of_error(&error, console).into(),
    }
}

fn monitor_threads(args: ThreadsArgs, console: &Console) -> ExitCode {
    let (quiet, verbose) = (args.quiet, args.verbose);
    let config = match threads::config(args) {
        Ok(config) => config,
        Err(conflict) => return exit::of_conflict(&conflict, console).into(),
    };
    logging::start(console, quiet, verbose);
    let has_command = matches!(config.target, Target::Command { .. });
    let outcome = crate::threads::monitor(&config, &mut Terminal::new(console.clone(), quiet, has_command));
    console.clear();
    match outcome {
        Ok(outcome) => exit::code_of(&outcome, false).into(),
        Err(error) => exit::of_error(&error, console).into(),
    }
}

fn measure_working_sets(args: WorkingSetArgs, console: &Console) -> Exit {
    let (quiet, verbose) = (args.quiet, args.verbose);
    let config = match working_set::config(args) {
        Ok(config) => config,
        Err(conflict) => return exit::of_conflict(&conflict, console),
    };
    logging::start(console, quiet, verbose);
    match crate::working_set::measure_working_sets(&config, &mut Terminal::new(console.clone(), quiet, false)) {
        Ok(true) => Exit::Success,
        Ok(false) => Exit::Lossy,
        Err(error) => exit::of_error(&error, console),
    }
}

/// Prints help, the version, or an error in the arguments.
fn refuse(refusal: clap::Error, console: &Console) -> Exit {
    if !refusal.use_stderr() {
        let text = refusal.render();
        let colour = console::wants_colour(&io::stdout());
        let text = if colour { text.ansi().to_string() } else { text.to_string() };
        return print(text.as_bytes(), Exit::Success, console);
    }
    let text = help::with_tip(refusal).render();
    let text = if console.has_colour() { text.ansi().to_string() } else { text.to_string() };
    console.styled_line(&format!("memtrace: {text}"));
    Exit::Usage
}

/// Writes to standard output. A closed pipe is no error.
fn print(bytes: &[u8], exit: Exit, console: &Console) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => exit,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(error) => failed(&error, console),
    }
}

fn failed(error: &io::Error, console: &Console) -> Exit {
    console.error(&format!("cannot write to standard output: {error}"), None);
    Exit::Failed
}
