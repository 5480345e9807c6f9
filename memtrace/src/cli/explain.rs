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
use crate::options::headings::TARGET;
use crate::options::possible_values;
use crate::options::units;
use crate::options::{Excluded, HelpFlag, TargetArgs, excluded, resolve_view};

/// Options of `memtrace explain`.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Explain the RSS of this process. Of several processes, explain the sum of their memory
    #[arg(short, long = "pid", value_name = "PID", value_parser = units::pid, allow_negative_numbers = true, help_heading = TARGET)]
    pids: Vec<Pid>,

    /// Add the child processes of --pid, and their child processes
    #[arg(long, help_heading = TARGET)]
    children: bool,

    /// Explain the memory of the whole machine
    #[arg(short, long, help_heading = TARGET)]
    all: bool,

    /// Explain the memory of the processes with this name, as `ps -o comm` shows it
    #[arg(long = "comm", value_name = "NAME", help_heading = TARGET)]
    comms: Vec<String>,

    /// Explain the memory of the processes that run this executable
    #[arg(long = "exe", value_name = "PATH", hide_short_help = true, help_heading = TARGET)]
    exes: Vec<PathBuf>,

    /// Explain the memory of this control group: a container, a service
    ///
    /// Its directory, or its path below the root cgroup, as in system.slice/nginx.service. With its page cache, its files in
    /// tmpfs, its kernel memory, its limits, and its OOM kills.
    #[arg(long = "cgroup", value_name = "PATH", help_heading = TARGET)]
    cgroups: Vec<PathBuf>,

    /// Explain the memory of the processes of this user, by name or id
    #[arg(long = "user", value_name = "USER", help_heading = TARGET)]
    users: Vec<String>,

    /// Exclude processes, as in comm=bash or user=root
    #[arg(long, value_name = "KIND=VALUE", value_parser = excluded, hide_short_help = true, help_heading = TARGET)]
    exclude: Vec<Excluded>,

    /// Write to this file, as text (.txt) or as JSON (.json); '-' is standard output, the default. May be given more
    /// than once
    #[arg(short, long = "output", value_name = "FILE")]
    outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = explain_formats())]
    format: Option<Format>,

    /// List N names of each kind, or N processes [default: 5 names, 20 processes]
    #[arg(long, value_name = "N")]
    top: Option<usize>,

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
        Ok(true) => Exit::Success,
        Ok(false) => Exit::Lossy,
        Err(error) => exit::of_error(&error, console),
    }
}

fn config(args: ExplainArgs) -> Result<Config, ArgConflict> {
    let target = TargetArgs {
        pids: args.pids,
        all: args.all,
        comms: args.comms,
        exes: args.exes,
        cgroups: args.cgroups,
        users: args.users,
        exclude: args.exclude,
        children: args.children,
        ..TargetArgs::default()
    };
    target.refuse_excluded_threads("explanations")?;
    let outputs = resolve_view(args.outputs, args.format, "explanations", Format::OF_EXPLANATIONS)?;
    if !target.selects_processes() {
        return Err(ArgConflict::new(
            "no process is given",
            "give --pid PID for a process, with --children for its child processes too, --cgroup, --comm, --exe or \
             --user for some processes, or --all for the whole machine",
        ));
    }
    refuse_contradictions(&target)?;
    let target = target.resolve(false)?;
    Ok(Config { target, outputs, top: args.top, colour: console::wants_colour(&io::stdout()) })
}

/// Refuses combinations of options that select processes. The remedies name options of explanations, not of traces.
fn refuse_contradictions(target: &TargetArgs) -> Result<(), ArgConflict> {
    let names_pids = !target.pids.is_empty();
    if names_pids && target.all {
        return Err(ArgConflict::new(
            "--all is given together with --pid",
            "remove one of them: --all explains the memory of every process and of the machine",
        ));
    }
    if names_pids && (target.selects_by_attribute() || !target.exclude.is_empty()) {
        return Err(ArgConflict::new(
            "--pid is given together with a process filter",
            "give either --pid, or --comm, --exe, --cgroup, --user and --exclude",
        ));
    }
    if target.children && !names_pids {
        return Err(ArgConflict::new(
            "--children needs --pid",
            "remove it: every process that matches is explained, whatever its parent",
        ));
    }
    Ok(())
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
    use memtrace_model::{FilterRule, Pid, ProcessAttribute};

    use super::super::args::{Action, Arguments};
    use super::*;
    use crate::run_kit::config::{Destination, Output};
    use crate::targets::select::Target;

    fn resolve(words: &[&str]) -> Result<Config, String> {
        let words = ["memtrace", "explain"].iter().chain(words);
        let Some(Action::Explain(args)) = Arguments::try_parse_from(words).expect("arguments").action else {
            panic!("not explain")
        };
        config(*args).map_err(|conflict| conflict.message)
    }

    fn outputs(words: &[&str]) -> Result<Vec<Output>, String> {
        resolve(&[&["--pid", "7"][..], words].concat()).map(|config| config.outputs)
    }

    #[test]
    fn default_output_is_standard_output() {
        let config = resolve(&["--pid", "7"]).expect("a configuration");
        assert_eq!((config.target, config.top), (Target::Pids { pids: vec![Pid(7)], children: false }, None));
        assert_eq!(config.outputs, [Output { destination: Destination::Stdout, format: Format::Text }]);
        let stdout = Output { destination: Destination::Stdout, format: Format::Json };
        assert_eq!(outputs(&["--format", "json"]), Ok(vec![stdout]));
    }

    #[test]
    fn extension_determines_the_format_and_stacks_are_refused() {
        let file = |name: &str, format| Output { destination: Destination::File(PathBuf::from(name)), format };
        let both = vec![file("a.txt", Format::Text), file("a.json", Format::Json)];
        assert_eq!(outputs(&["-o", "a.txt", "-o", "a.json"]), Ok(both));
        assert_eq!(outputs(&["-o", "a.svg"]), Err(String::from("explanations are not written as svg")));
        let stdout = Output { destination: Destination::Stdout, format: Format::Text };
        assert_eq!(outputs(&["-o", "-", "-o", "a.json"]), Ok(vec![stdout, file("a.json", Format::Json)]));
    }

    #[test]
    fn selection_is_one_process_or_several() {
        let target = |words: &[&str]| resolve(words).map(|config| config.target);
        assert_eq!(target(&["--pid", "7", "--children"]), Ok(Target::Pids { pids: vec![Pid(7)], children: true }));
        let pids = vec![Pid(7), Pid(9)];
        assert_eq!(target(&["-p", "7", "-p", "9"]), Ok(Target::Pids { pids, children: false }));
        assert_eq!(target(&["--all"]), Ok(Target::Selected { rules: Vec::new(), waits: false }));
        let rule = |attribute, exclude| FilterRule { attribute, exclude };
        let rules = vec![
            rule(ProcessAttribute::Cgroup("system.slice".into()), false),
            rule(ProcessAttribute::Comm(String::from("bash")), true),
        ];
        let words = ["--cgroup", "system.slice", "--exclude", "comm=bash"];
        assert_eq!(target(&words), Ok(Target::Selected { rules, waits: false }));
    }

    #[test]
    fn selection_without_a_process_is_refused() {
        let refused = |words: &[&str], start: &str| {
            let message = resolve(words).expect_err("a conflict");
            assert!(message.starts_with(start), "{message}");
        };
        refused(&[], "no process is given");
        refused(&["--children"], "no process is given");
        refused(&["--comm", "nginx", "--children"], "--children needs --pid");
        refused(&["--pid", "7", "--all"], "--all is given together with --pid");
        refused(&["--pid", "7", "--comm", "nginx"], "--pid is given together with a process filter");
        refused(&["--pid", "7", "--exclude", "comm=bash"], "--pid is given together with a process filter");
        refused(&["--exclude", "comm=bash"], "no process is given");
        refused(&["--all", "--exclude", "thread=gc"], "--exclude thread= does not apply");
    }
}
