//! The project's own commands: `cargo xtask help` lists them.

mod bench;
mod bpf;
mod command;
mod debian;
mod demo;
mod libraries;
mod lint;
mod privilege;
mod say;
mod setup;
mod test;
mod tidy;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};
use workspace::Workspace;

/// A row of the table of commands.
struct Task {
    name: &'static str,
    does: &'static str,
    run: fn(&Workspace) -> Result<()>,
}

const TASKS: &[Task] = &[
    Task { name: "demo", does: "set up, build, start a leaky service and draw who holds its memory", run: demo::run },
    Task { name: "test", does: "set up and run every check and every test, the privileged ones too", run: test::run },
    Task { name: "setup", does: "find or install what the builds and tests need", run: setup::run },
    Task { name: "bpf", does: "build the BPF object that memtrace carries", run: bpf::run },
    Task { name: "lint", does: "check formatting, clippy's lints and the project's own rules", run: lint::run },
    Task { name: "tidy", does: "check the project's own rules alone", run: tidy::run },
    Task { name: "bench", does: "run the benchmarks", run: bench::run },
];

fn main() -> ExitCode {
    let outcome = Workspace::find().and_then(|workspace| {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        dispatch(&workspace, &arguments)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::failure(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    match arguments {
        [name] if matches!(name.as_str(), "help" | "--help" | "-h") => {
            say::result(&usage());
            Ok(())
        }
        [name] => match TASKS.iter().find(|task| task.name == name) {
            Some(task) => (task.run)(workspace),
            None => bail!("there is no command {name:?}\n\n{}", usage()),
        },
        _ => bail!("one command is wanted\n\n{}", usage()),
    }
}

fn usage() -> String {
    let rows: Vec<String> = TASKS.iter().map(|task| format!("  {:<6} {}", task.name, task.does)).collect();
    format!("usage: cargo xtask COMMAND\n\n{}", rows.join("\n"))
}
