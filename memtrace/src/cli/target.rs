//! Processes to trace, from the options that select them.

use memtrace_model::{FilterRule, ProcessAttribute};

use super::args::TargetArgs;
use super::conflict::ArgConflict;
use super::filters::Excluded;
use crate::targets::select::Target;

/// Returns the processes to trace. With `pass_exit_code`, memtrace exits with the exit code of the command.
pub(super) fn resolve(args: &TargetArgs, pass_exit_code: bool) -> Result<Target, ArgConflict> {
    let rules = filter_rules(args);
    let selects = rules.iter().any(|rule| !rule.exclude);
    if pass_exit_code && args.command.is_empty() {
        return Err(ArgConflict::new(
            "--exit-code needs a command",
            "remove it, or give a command: `memtrace --exit-code -- CMD ARGS`",
        ));
    }
    match (args.pids.is_empty(), args.command.is_empty()) {
        (false, false) => Err(ArgConflict::new(
            "both --pid and a command are given",
            "trace either running processes or a command; two instances of memtrace may run at the same time",
        )),
        (false, true) | (true, false) if args.all => Err(ArgConflict::new(
            "--all is given together with --pid or a command",
            "remove one of them; --all traces every process until --duration is over, or until Ctrl-C",
        )),
        (false, true) | (true, false) if !rules.is_empty() => Err(ArgConflict::new(
            "--pid or a command is given together with a process filter",
            "give either --pid or a command, or --comm, --exe, --cgroup, --user and --exclude",
        )),
        (true, true) if args.children || args.no_children => Err(ArgConflict::new(
            "--children and --no-children need --pid or a command",
            "remove it: every process that matches the filter is traced, whatever its parent",
        )),
        (true, true) if args.all || selects => Ok(Target::Selected(rules)),
        (true, true) if !rules.is_empty() => Err(ArgConflict::new(
            "--exclude is given without a target",
            "add --all to trace all other processes of the machine, or select some: --comm, --exe, --cgroup, --user",
        )),
        (true, true) => Err(ArgConflict::new(
            "no target is given",
            "give --pid PID for a running process, -- CMD ARGS for a command, --comm, --exe, --cgroup or --user for \
             some processes, or --all for the whole machine",
        )),
        (false, true) => {
            let mut pids = Vec::with_capacity(args.pids.len());
            for &pid in &args.pids {
                if !pids.contains(&pid) {
                    pids.push(pid);
                }
            }
            Ok(Target::Pids { pids, children: args.children })
        }
        (true, false) => {
            Ok(Target::Command { argv: args.command.clone(), pass_exit_code, children: !args.no_children })
        }
    }
}

/// Returns the rules of all options that select processes.
fn filter_rules(args: &TargetArgs) -> Vec<FilterRule> {
    let include = |attribute| FilterRule { attribute, exclude: false };
    let comms = args.comms.iter().cloned().map(ProcessAttribute::Comm);
    let exes = args.exes.iter().cloned().map(ProcessAttribute::Exe);
    let cgroups = args.cgroups.iter().cloned().map(ProcessAttribute::Cgroup);
    let users = args.users.iter().cloned().map(ProcessAttribute::User);
    let excluded = args.exclude.iter().filter_map(|excluded| match excluded {
        Excluded::Processes(rule) => Some(rule.clone()),
        Excluded::Threads(_) => None,
    });
    comms.chain(exes).chain(cgroups).chain(users).map(include).chain(excluded).collect()
}
