//! Development commands. `cargo xtask help` lists them.

mod apt;
mod bench;
mod bpf;
mod command;
mod debian;
mod demo;
mod docs;
mod fuzz;
mod go_releases;
mod guide;
mod kernels;
mod libraries;
mod lint;
mod parallel;
mod privilege;
mod requirement;
mod setup;
mod soak;
mod test;
mod tidy;
mod tier;
mod toolchain;
mod ui;
mod verifier;
mod viewers;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};
use workspace::Workspace;

/// Row of the command table.
struct Task {
    /// Name of the command: one or more words.
    name: &'static str,
    does: &'static str,
    run: Run,
}

/// Entry point of a command.
enum Run {
    Alone(fn(&Workspace) -> Result<()>),
    WithOptions(fn(&Workspace, &[String]) -> Result<()>),
}

const TASKS: &[Task] = &[
    Task {
        name: "demo",
        does: "set up, build, trace a leaking service and write its flame graph",
        run: Run::Alone(demo::run),
    },
    Task {
        name: "test",
        does: "set up, run all checks and tests as user and as root (--long: also the long tier; --kernels LIST|all: only \
               on these kernels)",
        run: Run::WithOptions(test::run),
    },
    Task {
        name: "setup",
        does: "find or install the dependencies of builds and tests (--long: also of the long tier)",
        run: Run::WithOptions(setup::run),
    },
    Task {
        name: "fuzz",
        does: "run the fuzz targets, or the named ones, for a minute each (--minutes N)",
        run: Run::WithOptions(fuzz::run),
    },
    Task {
        name: "bpf",
        does: "build the BPF objects that memtrace embeds (--kernels LIST|all: also run their verifiers)",
        run: Run::WithOptions(kernels::build_bpf),
    },
    Task {
        name: "bpf verify",
        does: "print the number of instructions that the running kernel's verifier processes",
        run: Run::Alone(verifier::print_verdicts),
    },
    Task {
        name: "kernels table",
        does: "write the kernel features found by the last guest tests into the documentation",
        run: Run::Alone(kernels::write_table),
    },
    Task {
        name: "docs",
        does: "write docs/json.md and its schema from the types of the JSON, and docs/reference.md from those of the command line",
        run: Run::Alone(docs::run),
    },
    Task {
        name: "guide",
        does: "write the outputs and pictures of README.md and the guide from real runs, as root (--check: compare them; NAME...: \
               only these scenarios)",
        run: Run::WithOptions(guide::run),
    },
    Task {
        name: "lint",
        does: "check formatting, clippy lints, dependencies and tidy rules",
        run: Run::Alone(lint::run),
    },
    Task { name: "tidy", does: "check only the tidy rules", run: Run::Alone(tidy::run) },
    Task {
        name: "sizes",
        does: "print the files and lines of the product, without tests, comments and blank lines",
        run: Run::Alone(tidy::print_sizes),
    },
    Task { name: "bench", does: "run the microbenchmarks", run: Run::Alone(bench::run) },
    Task {
        name: "bench overhead",
        does: "measure the tracing overhead of malloc and free (--rounds N, --slice-ms N)",
        run: Run::WithOptions(bench::overhead),
    },
    Task {
        name: "bench real",
        does: "measure the slowdown of real programs (--rounds N, --scale PERCENT)",
        run: Run::WithOptions(bench::real),
    },
    Task {
        name: "bench unwind",
        does: "measure stack walks by depth, compared with the kernel's (--rounds N, --slice-ms N)",
        run: Run::WithOptions(bench::unwind),
    },
    Task {
        name: "bench spans",
        does: "measure the cost of tasks, events, locks and traced calls (--rounds N, --slice-ms N)",
        run: Run::WithOptions(bench::spans),
    },
    Task {
        name: "bench go",
        does: "measure the time to read a Go heap profile of 10,000 buckets, compared with one copy of as many bytes \
               (--rounds N)",
        run: Run::WithOptions(bench::go),
    },
    Task {
        name: "bench sampled",
        does: "measure the cost of sampled traces of running programs, and explain that of an empty loop (--rounds N, --slice-ms N)",
        run: Run::WithOptions(bench::sampled),
    },
    Task {
        name: "bench recording",
        does: "measure the cost of recording a trace of the whole machine (--rounds N, --seconds N)",
        run: Run::WithOptions(soak::compare_recording),
    },
    Task {
        name: "bench readme",
        does: "write the last results of bench overhead, spans and real into docs/guide/overhead.md",
        run: Run::Alone(bench::readme),
    },
    Task {
        name: "soak",
        does: "trace the machine during a compile, python and ls loop, and compare memory and cost with limits \
               (--minutes N)",
        run: Run::WithOptions(soak::run),
    },
];

fn main() -> ExitCode {
    let outcome = Workspace::find().and_then(|workspace| {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        dispatch(&workspace, &arguments)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            ui::failure(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    if matches!(arguments, [name] if matches!(name.as_str(), "help" | "--help" | "-h")) {
        ui::result(&usage());
        return Ok(());
    }
    let (task, rest) = find(arguments)?;
    match (&task.run, rest) {
        (Run::Alone(run), []) => run(workspace),
        (Run::Alone(_), _) => bail!("{} takes no options\n\n{}", task.name, usage()),
        (Run::WithOptions(run), options) => run(workspace, options),
    }
}

/// Returns the command with the longest name at the start of the arguments, and the remaining arguments.
fn find(arguments: &[String]) -> Result<(&'static Task, &[String])> {
    let rest_of = |task: &Task| {
        let mut rest = arguments;
        for word in task.name.split(' ') {
            rest = rest.split_first().filter(|(first, _)| *first == word)?.1;
        }
        Some(rest)
    };
    let task = TASKS.iter().filter_map(|task| Some((task, rest_of(task)?))).min_by_key(|(_, rest)| rest.len());
    match (task, arguments.first()) {
        (Some(task), _) => Ok(task),
        (None, Some(name)) => bail!("unknown command {name:?}\n\n{}", usage()),
        (None, None) => bail!("no command given\n\n{}", usage()),
    }
}

fn usage() -> String {
    let width = TASKS.iter().map(|task| task.name.len()).max().unwrap_or_default();
    let rows: Vec<String> = TASKS.iter().map(|task| format!("  {:<width$}  {}", task.name, task.does)).collect();
    format!("usage: cargo xtask COMMAND\n\n{}", rows.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_task(arguments: &[&str]) -> Option<(&'static str, Vec<String>)> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        find(&arguments).ok().map(|(task, rest)| (task.name, rest.to_vec()))
    }

    #[test]
    fn longest_matching_command_is_selected() {
        assert_eq!(find_task(&["bench"]), Some(("bench", vec![])));
        let options = vec![String::from("--rounds"), String::from("3")];
        assert_eq!(find_task(&["bench", "real", "--rounds", "3"]), Some(("bench real", options)));
        assert_eq!(find_task(&["real"]), None);
        assert_eq!(find_task(&[]), None);
    }
}
