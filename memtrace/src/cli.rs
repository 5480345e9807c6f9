//! The command line: arguments to [`session::Config`], and what a run tells to a terminal and an exit code.

mod args;
mod choices;
mod console;
mod doctor;
mod events;
mod exit;
mod explain;
mod help;
mod hooks;
mod logging;
mod man;
mod outputs;
mod progress;
mod resolve;
mod terminal;
mod units;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use self::args::{Action, Arguments, Trace};
use self::console::Console;
use self::exit::Exit;
use self::resolve::Contradiction;
use self::terminal::Terminal;
use crate::model::EventClass;
use crate::session::{self, Target};

/// Does what `arguments` ask, the program's own name being the first of them.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let console = Console::stderr();
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(refusal) => return refuse(refusal, &console).into(),
    };
    match arguments.action {
        None => trace(arguments.trace, &console),
        Some(Action::Faults(given)) => trace_only(*given, EventClass::Fault, &console),
        Some(Action::Reclaim(given)) => trace_only(*given, EventClass::Reclaim, &console),
        Some(Action::Maps(given)) => trace_only(*given, EventClass::Map, &console),
        Some(Action::Doctor(asked)) => {
            let findings = crate::doctor::examine(asked.pid);
            let colour = console::wants_colour(&io::stdout());
            let text = if asked.json { doctor::json(&findings) } else { doctor::text(&findings, colour) };
            print(text.as_bytes(), exit::of_findings(&findings), &console).into()
        }
        Some(Action::Explain(asked)) => explain::run(asked, &console).into(),
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

/// Traces events of `class` alone.
fn trace_only(given: Trace, class: EventClass, console: &Console) -> ExitCode {
    match events::only(given, class) {
        Ok(given) => trace(given, console),
        Err(contradiction) => refuse_together(&contradiction, console),
    }
}

fn trace(given: Trace, console: &Console) -> ExitCode {
    let (quiet, verbose) = (given.quiet, given.verbose);
    let config = match resolve::config(given) {
        Ok(config) => config,
        Err(contradiction) => return refuse_together(&contradiction, console),
    };
    logging::start(console, quiet, verbose);
    let pass = matches!(config.target, Target::Command { pass_exit_code: true, .. });
    let outcome = session::run(&config, &mut Terminal::new(console.clone(), quiet));
    console.clear();
    match outcome {
        Ok(outcome) => exit::code_of(&outcome, pass).into(),
        Err(error) => {
            console.error(&error.to_string(), error.remedy().as_deref());
            Exit::from(&error).into()
        }
    }
}

/// Says which arguments cannot be together.
fn refuse_together(contradiction: &Contradiction, console: &Console) -> ExitCode {
    console.error(&contradiction.message, Some(&contradiction.remedy));
    Exit::Usage.into()
}

/// Shows the help or the version that was asked for, or what is wrong with the arguments.
fn refuse(refusal: clap::Error, console: &Console) -> Exit {
    if !refusal.use_stderr() {
        let text = refusal.render();
        let colour = console::wants_colour(&io::stdout());
        let text = if colour { text.ansi().to_string() } else { text.to_string() };
        return print(text.as_bytes(), Exit::Success, console);
    }
    let text = help::with_tip(refusal).render();
    let text = if console.has_colour() { text.ansi().to_string() } else { text.to_string() };
    console.line(&format!("memtrace: {text}"));
    Exit::Usage
}

/// Writes to standard output. A reader that has seen enough and went away is no failure.
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
