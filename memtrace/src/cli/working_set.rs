//! `memtrace wss`: its options, configuration and exit code.

use std::mem;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, value_parser};
use memtrace_model::{Pid, WorkingSetMethod};
use memtrace_report::Format;

use super::console::Console;
use super::exit::{self, Exit};
use super::logging;
use super::terminal::Terminal;
use crate::options::conflict::ArgConflict;
use crate::options::headings::{OUTPUT, TARGET, TUNING};
use crate::options::possible_values;
use crate::options::units;
use crate::options::{Excluded, GeneralArgs, TargetArgs, excluded, resolve_view};
use crate::working_set::{WorkingSetConfig, WorkingSetMode};

/// Default of `--start`: the shortest duration of a profile.
const FIRST: Duration = Duration::from_millis(1);

/// Options of `memtrace wss`.
#[derive(Debug, Args)]
pub(super) struct WorkingSetArgs {
    /// Measure this running process
    ///
    /// May be given more than once.
    #[arg(short, long = "pid", value_name = "PID", value_parser = units::pid, allow_negative_numbers = true, help_heading = TARGET)]
    pids: Vec<Pid>,

    /// Measure every process
    #[arg(short, long, help_heading = TARGET)]
    all: bool,

    /// Measure processes with this name, as `ps -o comm` shows it
    #[arg(long = "comm", value_name = "NAME", help_heading = TARGET)]
    comms: Vec<String>,

    /// Measure processes that run this executable
    #[arg(long = "exe", value_name = "PATH", hide_short_help = true, help_heading = TARGET)]
    exes: Vec<PathBuf>,

    /// Measure processes in or below this control group
    #[arg(long = "cgroup", value_name = "PATH", help_heading = TARGET)]
    cgroups: Vec<PathBuf>,

    /// Measure processes of this user, by name or id
    #[arg(long = "user", value_name = "USER", help_heading = TARGET)]
    users: Vec<String>,

    /// Exclude processes, as in comm=bash or user=root
    #[arg(long, value_name = "KIND=VALUE", value_parser = excluded, hide_short_help = true, help_heading = TARGET)]
    exclude: Vec<Excluded>,

    /// Count the memory that is touched in this time, as in 10ms or 1m
    #[arg(value_name = "DURATION", value_parser = touch_time, default_value = "1s")]
    wait: Duration,

    /// Find touched pages by this method [default: referenced]
    #[arg(long, value_parser = working_set_methods(), help_heading = TUNING)]
    method: Option<WorkingSetMethod>,

    /// Estimate the memory limit at which the processes start to page
    ///
    /// Counts each page once. If several processes share more than 1 % of their pages, this needs CAP_SYS_ADMIN.
    #[arg(long, help_heading = TUNING)]
    fit: bool,

    /// Freeze the processes while they are cleared and read
    ///
    /// Gives an exact measurement time. Uses the freezer of the control group (version 2), never signals. The group must not
    /// contain other processes.
    #[arg(long, hide_short_help = true, help_heading = TUNING)]
    pause: bool,

    /// Measure again at this interval, until Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = units::duration, conflicts_with_all = ["cumulative", "profile"], help_heading = TUNING)]
    every: Option<Duration>,

    /// Stop after this time, as in 30s, 5m or 1h30m
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, help_heading = TUNING)]
    duration: Option<Duration>,

    /// Clear the references once, and read them at each DURATION, until Ctrl-C
    #[arg(long, conflicts_with = "profile", hide_short_help = true, help_heading = TUNING)]
    cumulative: bool,

    /// Clear the references once, and read them N times: after --start, and after durations that double
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(2..=32), conflicts_with = "wait", help_heading = TUNING)]
    profile: Option<u32>,

    /// Set the shortest duration of a profile [default: 1ms]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "profile", hide_short_help = true, help_heading = TUNING)]
    start: Option<Duration>,

    /// Write to this file; '-' is standard output, the default. May be given more than once. The extension determines
    /// the format: .txt, .svg, .csv or .json
    #[arg(short, long = "output", value_name = "FILE", help_heading = OUTPUT)]
    outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = working_set_formats(), help_heading = OUTPUT)]
    format: Option<Format>,

    #[command(flatten)]
    general: GeneralArgs,
}

impl WorkingSetArgs {
    /// Takes the options that select the processes.
    fn take_target(&mut self) -> TargetArgs {
        TargetArgs {
            pids: mem::take(&mut self.pids),
            all: self.all,
            comms: mem::take(&mut self.comms),
            exes: mem::take(&mut self.exes),
            cgroups: mem::take(&mut self.cgroups),
            users: mem::take(&mut self.users),
            exclude: mem::take(&mut self.exclude),
            ..TargetArgs::default()
        }
    }
}

/// Runs `memtrace wss`.
pub(super) fn run(args: WorkingSetArgs, console: &Console) -> Exit {
    let (quiet, verbose) = (args.general.quiet, args.general.verbose);
    let config = match config(args) {
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

/// Returns the configuration of the measurement.
fn config(mut args: WorkingSetArgs) -> Result<WorkingSetConfig, ArgConflict> {
    let target = args.take_target();
    check_target(&target)?;
    target.refuse_excluded_threads("working sets")?;
    let mode = mode(&args)?;
    check_method(&args, mode)?;
    let outputs = resolve_view(args.outputs, args.format, "working sets", Format::OF_WORKING_SETS)?;
    let is_once = matches!(mode, WorkingSetMode::Once { .. });
    if is_once && outputs.iter().any(|output| output.format == Format::Svg) {
        return Err(ArgConflict::new(
            "a picture needs several readings",
            "add --profile N, --cumulative or --every DURATION, or write another format",
        ));
    }
    if is_once && args.duration.is_some() {
        return Err(ArgConflict::new(
            "--duration is given for a single measurement",
            "give the time of a measurement without an option, as in `memtrace wss --pid PID 10s`, or add --every",
        ));
    }
    let target = target.resolve(false)?;
    Ok(WorkingSetConfig {
        target,
        method: args.method,
        fit: args.fit,
        pause: args.pause,
        mode,
        duration: args.duration,
        outputs,
    })
}

/// Refuses a measurement of no process. Unlike a trace, it has no command as a target.
fn check_target(target: &TargetArgs) -> Result<(), ArgConflict> {
    // An exclusion without a selection is accepted here, because it has an error of its own.
    if target.selects_processes() || !target.exclude.is_empty() {
        return Ok(());
    }
    Err(ArgConflict::new(
        "no target is given",
        "give --pid PID for a running process, --comm, --exe, --cgroup or --user for some processes, or --all for the \
         whole machine",
    ))
}

/// Parses the time of a measurement. A number without a unit can be meant as a pid.
fn touch_time(text: &str) -> Result<Duration, String> {
    units::duration(text).map_err(|error| match units::pid(text) {
        Ok(pid) => format!("{error}; to measure a process, write --pid {pid}"),
        Err(_) => error,
    })
}

/// Refuses combinations of options that the chosen method, or `--pause`, does not support.
fn check_method(args: &WorkingSetArgs, mode: WorkingSetMode) -> Result<(), ArgConflict> {
    let is_damon = args.method == Some(WorkingSetMethod::Damon);
    let conflicts = [
        (
            is_damon && matches!(mode, WorkingSetMode::Profile { .. }),
            "--method damon cannot measure a profile: DAMON samples for one fixed time",
            "remove --profile, or use another method",
        ),
        (
            is_damon && args.pause,
            "--method damon samples running processes, and --pause freezes them",
            "remove --pause, or use another method",
        ),
        (
            args.pause && args.all,
            "--pause does not freeze the whole machine",
            "give the processes by --pid, --cgroup or --comm",
        ),
        (
            args.fit && args.method == Some(WorkingSetMethod::Faults),
            "--fit needs all touched pages, and --method faults finds only those that had a page fault",
            "remove --fit, or use another method",
        ),
        (
            args.fit && args.method == Some(WorkingSetMethod::Written),
            "--fit needs reads too, and --method written finds only writes",
            "remove --fit, or use another method",
        ),
    ];
    match conflicts.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, message, remedy)) => Err(ArgConflict::new(message, remedy)),
        None => Ok(()),
    }
}

fn mode(args: &WorkingSetArgs) -> Result<WorkingSetMode, ArgConflict> {
    let wait = args.wait;
    let first = args.start.unwrap_or(FIRST);
    if wait.is_zero() || first.is_zero() || args.every.is_some_and(|every| every.is_zero()) {
        return Err(ArgConflict::new("nothing is touched in a time of 0 s", "give a longer time, as in 100ms"));
    }
    match (args.profile, args.every) {
        (Some(steps), _) => Ok(WorkingSetMode::Profile { first, steps }),
        (None, _) if args.cumulative => Ok(WorkingSetMode::Cumulative { every: wait }),
        (None, Some(every)) if every < wait => Err(ArgConflict::new(
            "--every is shorter than a measurement",
            "give a longer interval, or --cumulative, which clears the references once",
        )),
        (None, Some(every)) => Ok(WorkingSetMode::Repeated { wait, every }),
        (None, None) => Ok(WorkingSetMode::Once { wait }),
    }
}

fn working_set_methods() -> impl TypedValueParser<Value = WorkingSetMethod> {
    possible_values::one_of(WorkingSetMethod::ALL, |method| {
        let help = match method {
            WorkingSetMethod::Referenced => "accessed bits, summed by mapping (clear_refs, smaps)",
            WorkingSetMethod::Idle => {
                "idle flags of single pages; also with unmapped pages of files (CONFIG_IDLE_PAGE_TRACKING)"
            }
            WorkingSetMethod::Damon => "an estimate by samples of the kernel (CONFIG_DAMON_VADDR, CONFIG_DAMON_SYSFS)",
            WorkingSetMethod::Faults => "pages that had a page fault: a lower bound (BPF)",
            WorkingSetMethod::Written => "soft-dirty bits of single pages: writes only (CONFIG_MEM_SOFT_DIRTY)",
        };
        PossibleValue::new(method.name()).help(help)
    })
}

fn working_set_formats() -> impl TypedValueParser<Value = Format> {
    possible_values::one_of(Format::OF_WORKING_SETS, |format| {
        let help = match format {
            Format::Svg => "curves over time",
            Format::Csv => "comma-separated values, a row for each process and reading",
            Format::Json => "JSON lines, one for each reading",
            _ => "a table",
        };
        PossibleValue::new(format.name()).help(help)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::{Action, Arguments};
    use super::*;

    fn resolve(words: &[&str]) -> Result<WorkingSetConfig, String> {
        let words = ["memtrace", "wss", "--pid", "7"].iter().chain(words);
        let Some(Action::Wss(args)) = Arguments::try_parse_from(words).map_err(|error| error.to_string())?.action
        else {
            panic!("not wss")
        };
        config(*args).map_err(|conflict| conflict.message)
    }

    #[test]
    fn modes_follow_from_the_options() {
        let mode = |words: &[&str]| resolve(words).map(|config| config.mode);
        let [ms, second] = [1, 1000].map(Duration::from_millis);
        assert_eq!(mode(&[]), Ok(WorkingSetMode::Once { wait: second }));
        assert_eq!(mode(&["20s"]), Ok(WorkingSetMode::Once { wait: 20 * second }));
        let repeated = WorkingSetMode::Repeated { wait: second, every: 60 * second };
        assert_eq!(mode(&["--every", "1m", "-d", "1h"]), Ok(repeated));
        assert_eq!(mode(&["--cumulative", "5s"]), Ok(WorkingSetMode::Cumulative { every: 5 * second }));
        assert_eq!(mode(&["--profile", "12"]), Ok(WorkingSetMode::Profile { first: ms, steps: 12 }));
        let profile = WorkingSetMode::Profile { first: second, steps: 3 };
        assert_eq!(mode(&["--profile", "3", "--start", "1s"]), Ok(profile));
    }

    #[test]
    fn target_is_required() {
        let refused = |line: &str| {
            let words = ["memtrace", "wss"].into_iter().chain(line.split_whitespace());
            let arguments = Arguments::try_parse_from(words).expect("each argument is valid");
            let Some(Action::Wss(args)) = arguments.action else { panic!("not wss") };
            config(*args).expect_err("a conflict")
        };
        for line in ["", "10s", "-d 1m", "-o a.svg", "--profile 4", "--method damon --pause"] {
            let ArgConflict { message, remedy } = refused(line);
            assert_eq!(message, "no target is given", "{line}");
            assert!(remedy.starts_with("give --pid PID") && !remedy.contains("CMD"), "{line}: {remedy}");
        }
        assert_eq!(refused("--exclude pid=9").message, "--exclude is given without a target");
    }

    #[test]
    fn number_without_a_unit_may_be_a_pid() {
        assert_eq!(touch_time("10ms"), Ok(Duration::from_millis(10)));
        let refused = touch_time("4711").expect_err("the unit is missing");
        assert!(refused.starts_with("a unit is missing; write 4711s for seconds"), "{refused}");
        assert!(refused.ends_with("; to measure a process, write --pid 4711"), "{refused}");
        assert_eq!(touch_time("5w"), units::duration("5w"));
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |words: &[&str]| resolve(words).expect_err("a conflict");
        assert_eq!(refused(&["0s"]), "nothing is touched in a time of 0 s");
        assert_eq!(refused(&["10s", "--every", "5s"]), "--every is shorter than a measurement");
        assert_eq!(refused(&["-o", "a.svg"]), "a picture needs several readings");
        assert!(refused(&["--method", "damon", "--pause"]).starts_with("--method damon samples running"));
        assert!(refused(&["--pause", "--all"]).starts_with("--pause does not freeze"));
        assert!(refused(&["--method", "written", "--fit"]).starts_with("--fit needs reads too"));
        let profile = refused(&["--method", "damon", "--profile", "3"]);
        assert_eq!(profile, "--method damon cannot measure a profile: DAMON samples for one fixed time");
        assert_eq!(refused(&["-d", "1m"]), "--duration is given for a single measurement");
        assert_eq!(refused(&["--all"]), "--all is given together with --pid or a command");
        for words in [&["--profile", "3", "--cumulative"], &["--profile", "3", "5s"]] as [&[&str]; 2] {
            assert!(refused(words).contains("cannot be used with"), "{words:?}");
        }
    }
}
