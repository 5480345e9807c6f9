//! Command line: converts arguments to the configuration of a command, runs the command, prints its messages, and
//! returns the exit code.

mod accounts;
mod args;
mod console;
mod detach;
mod diff;
mod doctor;
mod exit;
mod explain;
mod help;
mod logging;
mod man;
mod mark;
mod progress;
mod reference;
mod report;
mod terminal;
mod threads;
mod trace;
mod working_set;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use memtrace_host::{patcher, symbolizer, target_files};

use self::args::{Action, Arguments};
#[cfg(test)]
pub(crate) use self::args::{parsed_trace, refusal_of_trace, resolved_trace};
use self::console::Console;
use self::exit::Exit;
#[cfg(test)]
pub(crate) use self::trace::CommonArgs;
use crate::run_kit::{forced_end, privileges};

/// Returns a page in Markdown with all commands and options.
#[must_use]
pub fn reference() -> String {
    reference::text()
}

/// Returns true if `arguments` are a valid command line. The first argument is the name of the executable. Runs nothing.
pub fn accepts(arguments: impl IntoIterator<Item = OsString>) -> bool {
    Arguments::try_parse_from(arguments).is_ok()
}

/// Runs memtrace. The first argument is the name of the executable.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let console = Console::stderr();
    let arguments = arguments.into_iter().collect::<Vec<_>>();
    if arguments.first().is_some_and(|name| name == symbolizer::NAME) {
        return symbolizer::serve();
    }
    if arguments.first().is_some_and(|name| name == target_files::NAME) {
        return target_files::serve();
    }
    if arguments.first().is_some_and(|name| name == patcher::NAME) {
        return patcher::serve();
    }
    target_files::enable(forced_end::skips_files, privileges::TRACING);
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
        None => trace::run(arguments.trace, &console),
        Some(Action::Record(mut args)) => {
            args.common.recording.add_default(&mut args.common.output);
            trace::run(*args, &console)
        }
        Some(Action::Faults(args)) => trace::run((*args).into(), &console),
        Some(Action::Reclaim(args)) => trace::run((*args).into(), &console),
        Some(Action::Maps(args)) => trace::run((*args).into(), &console),
        Some(Action::Accounts(args)) => accounts::run(*args, &console),
        Some(Action::Threads(args)) => threads::run(*args, &console),
        Some(Action::Wss(args)) => working_set::run(*args, &console).into(),
        Some(Action::Doctor(args)) => {
            let (text, exit) = doctor::run(&args);
            print(text.as_bytes(), exit, &console).into()
        }
        Some(Action::Detach(args)) => {
            let (text, exit) = detach::run(&args, &console);
            print(text.as_bytes(), exit, &console).into()
        }
        Some(Action::Explain(args)) => explain::run(*args, &console).into(),
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
        Some(Action::Help { command, .. }) => {
            refuse(help::page(command.as_deref(), &Arguments::command()), &console).into()
        }
    }
}

/// Returns true if the arguments contain `-h`, alone or together with other short options, as in `-qh`.
fn asks_for_short_help(arguments: &[OsString]) -> bool {
    let is_help = |argument: &str| argument.starts_with('-') && !argument.starts_with("--") && argument.ends_with('h');
    let options = arguments.iter().take_while(|argument| *argument != "--");
    options.filter_map(|argument| argument.to_str()).any(is_help)
}

/// Prints clap's error: the help, the version, or the reason that the arguments are invalid. Returns the exit.
fn refuse(refusal: clap::Error, console: &Console) -> Exit {
    if !refusal.use_stderr() {
        let text = refusal.render();
        let colour = console::wants_colour(&io::stdout());
        let text = if colour { text.ansi().to_string() } else { text.to_string() };
        return print(text.as_bytes(), Exit::Success, console);
    }
    let text = help::with_tip(refusal, &Arguments::command()).render();
    let text = if console.has_colour() { text.ansi().to_string() } else { text.to_string() };
    console.styled_line(&format!("memtrace: {text}"));
    Exit::Usage
}

/// Writes to standard output. Returns `exit`, or a failure if the write fails. A closed pipe is not a failure.
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
