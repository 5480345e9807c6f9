//! Options that select the processes, and that end the trace.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use memtrace_model::{FilterRule, Pid, ProcessAttribute};

use crate::options::conflict::ArgConflict;
use crate::options::headings::TARGET;
use crate::options::units;
use crate::targets::select::Target;

/// Maximum length of a thread's name, in bytes (`TASK_COMM_LEN`, include/linux/sched.h).
const MAX_THREAD_NAME: usize = 15;

/// The processes, as given.
#[derive(Debug, Default, Args)]
pub(crate) struct TargetArgs {
    /// Trace this running process
    ///
    /// May be given more than once. For a process in a container, give its pid on the host.
    #[arg(short, long = "pid", value_name = "PID", value_parser = units::pid, allow_negative_numbers = true, help_heading = TARGET)]
    pub(crate) pids: Vec<Pid>,

    /// Trace the whole machine, with the processes that start later
    ///
    /// With --comm, --exe, --cgroup or --user, only matching processes are traced, as without --all. --exclude leaves
    /// out others.
    #[arg(short, long, help_heading = TARGET)]
    pub(crate) all: bool,

    /// Trace processes with this name, as `ps -o comm` shows it
    ///
    /// This includes processes that start later. May be given more than once, and with --exe, --cgroup and --user: a
    /// process that matches one of them is traced.
    #[arg(long = "comm", value_name = "NAME", help_heading = TARGET)]
    pub(crate) comms: Vec<String>,

    /// Trace processes that run this executable
    #[arg(long = "exe", value_name = "PATH", hide_short_help = true, help_heading = TARGET)]
    pub(crate) exes: Vec<PathBuf>,

    /// Trace processes in or below this control group: a container, a service
    ///
    /// Its directory, or its path below the root cgroup, as in system.slice/nginx.service.
    #[arg(long = "cgroup", value_name = "PATH", help_heading = TARGET)]
    pub(crate) cgroups: Vec<PathBuf>,

    /// Trace processes of this user, by name or id
    #[arg(long = "user", value_name = "USER", help_heading = TARGET)]
    pub(crate) users: Vec<String>,

    /// Exclude processes, as in comm=bash or user=root, or threads, as in thread=gc
    ///
    /// By comm, exe, cgroup, user or pid, or by the name of a thread. May be given more than once. It overrides all other
    /// options.
    #[arg(long, value_name = "KIND=VALUE", value_parser = excluded, hide_short_help = true, help_heading = TARGET)]
    pub(crate) exclude: Vec<Excluded>,

    /// Wait for a process that matches, if none runs
    ///
    /// Without it, a selection that matches no running process is refused. The executable, control group or user must exist.
    #[arg(long, hide_short_help = true, help_heading = TARGET)]
    pub(crate) wait: bool,

    /// Also trace child processes of --pid
    ///
    /// Child processes of a command are traced unless --no-children is given. Probes then apply to all processes that
    /// use the same libraries; the others are slowed down a little.
    #[arg(long, overrides_with = "no_children", hide_short_help = true, help_heading = TARGET)]
    pub(crate) children: bool,

    /// Trace only the process of the command
    #[arg(long, overrides_with = "children", hide_short_help = true, help_heading = TARGET)]
    pub(crate) no_children: bool,

    /// Stop each process of the command at exec until its executable is probed
    ///
    /// For statically linked executables that the command starts. Otherwise their first blocks are not counted. A process
    /// is stopped for 2 s at most. memtrace traces the processes by ptrace(2): signals, forks and new threads become
    /// slower, and strace and gdb cannot attach to the processes (EPERM).
    #[arg(long, hide_short_help = true, help_heading = TARGET)]
    pub(crate) hold_exec: bool,

    /// Start this command and trace it from its first instruction to its end
    ///
    /// Under sudo, the command runs as the user that called sudo. Until it ends, probes in the C library slow down all processes of
    /// the machine a little, unless --no-children is given.
    #[arg(last = true, value_names = ["CMD", "ARGS"], num_args = 1.., help_heading = TARGET)]
    pub(crate) command: Vec<OsString>,
}

impl TargetArgs {
    /// Returns the target of the trace. With `pass_exit_code`, memtrace exits with the exit code of the command.
    pub(crate) fn resolve(&self, pass_exit_code: bool) -> Result<Target, ArgConflict> {
        let rules = self.filter_rules();
        let selects = rules.iter().any(|rule| !rule.exclude);
        if pass_exit_code && self.command.is_empty() {
            return Err(ArgConflict::new(
                "--exit-code needs a command",
                "remove it, or give a command: `memtrace --exit-code -- CMD ARGS`",
            ));
        }
        if self.hold_exec && self.command.is_empty() {
            return Err(ArgConflict::new(
                "--hold-exec needs a command",
                "remove it, or give a command: `memtrace --hold-exec -- CMD ARGS`",
            ));
        }
        if self.hold_exec && self.no_children {
            return Err(ArgConflict::new(
                "--hold-exec is given together with --no-children",
                "remove one of them: a command without its child processes is probed before it starts",
            ));
        }
        match (self.pids.is_empty(), self.command.is_empty()) {
            (false, false) => Err(ArgConflict::new(
                "both --pid and a command are given",
                "trace either running processes or a command; two instances of memtrace may run at the same time",
            )),
            (false, true) | (true, false) if self.all => Err(ArgConflict::new(
                "--all is given together with --pid or a command",
                "remove one of them; --all traces every process until --duration is over, or until Ctrl-C",
            )),
            (false, true) | (true, false) if self.wait => Err(ArgConflict::new(
                "--wait is given together with --pid or a command",
                "remove it: it waits for processes of --comm, --exe, --cgroup or --user",
            )),
            (false, true) | (true, false) if !rules.is_empty() => Err(ArgConflict::new(
                "--pid or a command is given together with a process filter",
                "give either --pid or a command, or --comm, --exe, --cgroup, --user and --exclude",
            )),
            (true, true) if self.children || self.no_children => Err(ArgConflict::new(
                "--children and --no-children need --pid or a command",
                "remove it: every process that matches the filter is traced, whatever its parent",
            )),
            (true, true) if self.wait && !selects => Err(ArgConflict::new(
                "--wait is given without a selection of processes",
                "remove it: it waits for processes of --comm, --exe, --cgroup or --user",
            )),
            (true, true) if self.all || selects => Ok(Target::Selected { rules, waits: self.wait }),
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
                let mut pids = Vec::with_capacity(self.pids.len());
                for &pid in &self.pids {
                    if !pids.contains(&pid) {
                        pids.push(pid);
                    }
                }
                Ok(Target::Pids { pids, children: self.children })
            }
            (true, false) => {
                let (children, holds_execs) = (!self.no_children, self.hold_exec);
                Ok(Target::Command { argv: self.command.clone(), pass_exit_code, children, holds_execs })
            }
        }
    }

    /// Returns the rules of all options that select processes.
    fn filter_rules(&self) -> Vec<FilterRule> {
        let include = |attribute| FilterRule { attribute, exclude: false };
        let comms = self.comms.iter().cloned().map(ProcessAttribute::Comm);
        let exes = self.exes.iter().cloned().map(ProcessAttribute::Exe);
        let cgroups = self.cgroups.iter().cloned().map(ProcessAttribute::Cgroup);
        let users = self.users.iter().cloned().map(ProcessAttribute::User);
        let excluded = self.exclude.iter().filter_map(|excluded| match excluded {
            Excluded::Processes(rule) => Some(rule.clone()),
            Excluded::Threads(_) => None,
        });
        comms.chain(exes).chain(cgroups).chain(users).map(include).chain(excluded).collect()
    }

    /// Returns true if the target is given by pids or by a command. Then its objects are known before the trace.
    pub(crate) const fn names_processes(&self) -> bool {
        !self.pids.is_empty() || !self.command.is_empty()
    }

    /// Returns true if all processes are selected, apart from excluded ones.
    pub(crate) const fn is_whole_machine(&self) -> bool {
        self.all && !self.selects_by_attribute() && !self.names_processes()
    }

    /// Returns true if an option selects processes.
    pub(crate) const fn selects_processes(&self) -> bool {
        self.selects_by_attribute() || self.all || self.names_processes()
    }

    /// Returns true if an option selects processes by their name, executable, control group or user.
    pub(crate) const fn selects_by_attribute(&self) -> bool {
        !self.comms.is_empty() || !self.exes.is_empty() || !self.cgroups.is_empty() || !self.users.is_empty()
    }

    /// Refuses excluded threads. `subject`: results of the command, in the plural.
    pub(crate) fn refuse_excluded_threads(&self, subject: &str) -> Result<(), ArgConflict> {
        if self.excluded_threads().next().is_some() {
            let message = format!("--exclude thread= does not apply to {subject}");
            return Err(ArgConflict::new(message, "exclude processes"));
        }
        Ok(())
    }

    /// Returns the names of the excluded threads.
    pub(crate) fn excluded_threads(&self) -> impl Iterator<Item = &str> {
        self.exclude.iter().filter_map(|excluded| match excluded {
            Excluded::Threads(name) => Some(name.as_str()),
            Excluded::Processes(_) => None,
        })
    }
}

/// Options that end a trace.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    /// Stop after this time, as in 30s, 5m or 1h30m
    ///
    /// Units are ms, s, m, h and d. By default, memtrace traces until Ctrl-C, SIGTERM or the end of the target.
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, help_heading = TARGET)]
    pub(crate) duration: Option<Duration>,

    /// Exit with the command's exit code
    ///
    /// If a signal killed the command, the exit code is 128 plus the signal's number. Only with a command. If memtrace
    /// itself fails, its own exit code takes precedence.
    #[arg(long, hide_short_help = true, help_heading = TARGET)]
    pub(crate) exit_code: bool,
}

impl EndArgs {
    pub(crate) fn check(&self) -> Result<(), ArgConflict> {
        match self.duration.is_some_and(|duration| duration.is_zero()) {
            true => Err(ArgConflict::new("--duration 0s traces nothing", "give a longer one, as in 30s")),
            false => Ok(()),
        }
    }
}

/// Value of `--exclude`: processes or threads that are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Excluded {
    Processes(FilterRule),
    /// Threads with this name.
    Threads(String),
}

/// Parses the name of a thread.
pub(crate) fn thread(name: &str) -> Result<String, String> {
    match name.len() {
        0 => Err(String::from("the name of a thread is empty")),
        1..=MAX_THREAD_NAME => Ok(name.to_owned()),
        _ => Err(format!("names of threads have at most {MAX_THREAD_NAME} bytes")),
    }
}

/// Parses the value of `--exclude`: `comm=bash`, `user=root`, `exe=/usr/bin/make`, `cgroup=system.slice`, `pid=4711`,
/// `thread=worker`.
pub(crate) fn excluded(text: &str) -> Result<Excluded, String> {
    let how = "write comm=NAME, exe=PATH, cgroup=PATH, user=USER, pid=PID or thread=NAME";
    let (kind, value) = text.split_once('=').ok_or(how)?;
    if value.is_empty() {
        return Err(format!("'{kind}=' has no value; {how}"));
    }
    let attribute = match kind {
        "comm" => ProcessAttribute::Comm(value.to_owned()),
        "exe" => ProcessAttribute::Exe(value.into()),
        "cgroup" => ProcessAttribute::Cgroup(value.into()),
        "user" => ProcessAttribute::User(value.to_owned()),
        "pid" => ProcessAttribute::Pid(units::pid(value)?),
        "thread" => return thread(value).map(Excluded::Threads),
        _ => return Err(format!("'{kind}' is not an attribute of processes or threads; {how}")),
    };
    Ok(Excluded::Processes(FilterRule { attribute, exclude: true }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::refusal_of_trace as refused;
    use crate::cli::resolved_trace as resolved;

    #[test]
    fn exclusion_is_kind_and_value() {
        let by = |text| match excluded(text)? {
            Excluded::Processes(rule) => Ok(rule.attribute),
            Excluded::Threads(name) => Err(name),
        };
        assert_eq!(excluded("thread=a=b"), Ok(Excluded::Threads(String::from("a=b"))));
        assert!(excluded("thread=0123456789abcdef").is_err_and(|error| error.contains("at most 15 bytes")));
        assert_eq!(by("comm=a=b"), Ok(ProcessAttribute::Comm(String::from("a=b"))));
        assert_eq!(by("pid=7"), Ok(ProcessAttribute::Pid(Pid(7))));
        assert_eq!(by("exe=/bin/true"), Ok(ProcessAttribute::Exe("/bin/true".into())));
        for wrong in ["bash", "comm=", "name=bash", "pid=seven"] {
            assert!(by(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn target_is_of_one_kind_or_all_processes() {
        let target = |line: &str| resolved(line).map(|config| config.target);
        assert_eq!(target("-a"), Ok(Target::Selected { rules: vec![], waits: false }));
        let rule = |attribute, exclude| FilterRule { attribute, exclude };
        let rules = vec![
            rule(ProcessAttribute::Comm(String::from("nginx")), false),
            rule(ProcessAttribute::User(String::from("www-data")), false),
            rule(ProcessAttribute::Pid(Pid(9)), true),
        ];
        for line in ["--user www-data --exclude pid=9 --comm nginx", "-a --user www-data --exclude pid=9 --comm nginx"]
        {
            assert_eq!(target(line), Ok(Target::Selected { rules: rules.clone(), waits: false }), "{line}");
        }
        let all_others = vec![rule(ProcessAttribute::Pid(Pid(9)), true)];
        assert_eq!(target("--all --exclude pid=9"), Ok(Target::Selected { rules: all_others, waits: false }));
        assert!(refused("--exit-code").starts_with("--exit-code needs a command"));
        assert!(refused("--pid 1 --comm bash").starts_with("--pid or a command is given together"));
        assert!(refused("--exclude pid=1 -- ls").starts_with("--pid or a command is given together"));
        assert!(refused("--children").starts_with("--children and --no-children need"));
        assert!(refused("--pid 1 --wait").starts_with("--wait is given together with --pid"));
        assert!(refused("-a --wait").starts_with("--wait is given without a selection"));
        let waiting = target("--comm nginx --wait").unwrap();
        assert!(matches!(waiting, Target::Selected { waits: true, .. }), "{waiting:?}");
        assert_eq!(refused("--pid 1 -- ls"), "both --pid and a command are given");
        assert!(refused("--pid 1 --exit-code").starts_with("--exit-code needs a command"));
        assert_eq!(refused("--pid 1 --children --hold-exec"), "--hold-exec needs a command");
        assert_eq!(refused("--all --hold-exec"), "--hold-exec needs a command");
        assert_eq!(refused("--hold-exec --no-children -- ls"), "--hold-exec is given together with --no-children");
        assert_eq!(refused("--pid 1 --all"), "--all is given together with --pid or a command");
        assert_eq!(refused("--all -- ls"), "--all is given together with --pid or a command");
    }

    #[test]
    fn whole_machine_is_traced_on_request_only() {
        for line in ["", "-d 1m", "--events fault", "--events reclaim -q", "--by user -o a.svg"] {
            assert_eq!(refused(line), "no target is given", "{line}");
        }
        assert_eq!(refused("--exclude pid=9 -d 1m"), "--exclude is given without a target");
    }

    #[test]
    fn pid_given_twice_is_traced_once() {
        let target = resolved("-p 7 -p 9 --pid 7").map(|config| config.target);
        assert_eq!(target, Ok(Target::Pids { pids: vec![Pid(7), Pid(9)], children: false }));
    }

    #[test]
    fn children_are_traced_by_default_for_commands_only() {
        let children = |line: &str| match resolved(line).map(|config| config.target) {
            Ok(Target::Pids { children, .. } | Target::Command { children, .. }) => children,
            other => panic!("{other:?}"),
        };
        assert!(children("-- ls") && children("--pid 1 --children") && children("--no-children --children -- ls"));
        assert!(!children("--no-children -- ls") && !children("--pid 1"));
    }
}
