//! `memtrace wss`: its configuration.

use std::time::Duration;

use memtrace_model::WorkingSetMethod;
use memtrace_report::Format;

use super::args::{TargetArgs, WorkingSetArgs};
use super::conflict::ArgConflict;
use super::filters::Excluded;
use super::{outputs, target};
use crate::working_set::{WorkingSetConfig, WorkingSetMode};

/// Shortest duration of a profile.
const FIRST: Duration = Duration::from_millis(1);

/// Returns the configuration of the measurement.
pub(super) fn config(args: WorkingSetArgs) -> Result<WorkingSetConfig, ArgConflict> {
    if args.exclude.iter().any(|excluded| matches!(excluded, Excluded::Threads(_))) {
        return Err(ArgConflict::new("--exclude thread= does not apply to working sets", "exclude processes"));
    }
    let mode = mode(&args)?;
    check_method(&args, mode)?;
    let outputs = outputs::resolve_view(args.outputs, args.format, "working sets", Format::OF_WORKING_SETS)?;
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
    let target = target::resolve(
        &TargetArgs {
            pids: args.pids,
            all: args.all,
            comms: args.comms,
            exes: args.exes,
            cgroups: args.cgroups,
            users: args.users,
            exclude: args.exclude,
            children: false,
            no_children: false,
            command: Vec::new(),
        },
        false,
    )?;
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

/// Refuses options that a method cannot fulfil.
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
