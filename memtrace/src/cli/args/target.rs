//! Options that select the processes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use memtrace_model::Pid;

use super::headings::TARGET;
use crate::cli::filters::Excluded;
use crate::cli::{filters, units};

/// The processes, as given.
#[derive(Debug, Args)]
pub(in crate::cli) struct TargetArgs {
    /// Trace this running process
    ///
    /// May be given more than once. For a process in a container, give its pid on the host.
    #[arg(short, long = "pid", value_name = "PID", value_parser = units::pid, allow_negative_numbers = true, help_heading = TARGET)]
    pub(in crate::cli) pids: Vec<Pid>,

    /// Trace the whole machine, with the processes that start later
    ///
    /// With --comm, --exe, --cgroup or --user, only matching processes are traced, as without --all. --exclude leaves
    /// out others.
    #[arg(short, long, help_heading = TARGET)]
    pub(in crate::cli) all: bool,

    /// Trace processes with this name, as `ps -o comm` shows it
    ///
    /// This includes processes that start later. May be given more than once, and with --exe, --cgroup and --user: a
    /// process that matches one of them is traced.
    #[arg(long = "comm", value_name = "NAME", help_heading = TARGET)]
    pub(in crate::cli) comms: Vec<String>,

    /// Trace processes that run this executable
    #[arg(long = "exe", value_name = "PATH", hide_short_help = true, help_heading = TARGET)]
    pub(in crate::cli) exes: Vec<PathBuf>,

    /// Trace processes in or below this control group: a container, a service
    ///
    /// Its directory, or its path below the root cgroup, as in system.slice/nginx.service.
    #[arg(long = "cgroup", value_name = "PATH", help_heading = TARGET)]
    pub(in crate::cli) cgroups: Vec<PathBuf>,

    /// Trace processes of this user, by name or id
    #[arg(long = "user", value_name = "USER", help_heading = TARGET)]
    pub(in crate::cli) users: Vec<String>,

    /// Exclude processes, as in comm=bash or user=root, or threads, as in thread=gc
    ///
    /// By comm, exe, cgroup, user or pid, or by the name of a thread. May be given more than once. It overrides all other
    /// options.
    #[arg(long, value_name = "KIND=VALUE", value_parser = filters::excluded, hide_short_help = true, help_heading = TARGET)]
    pub(in crate::cli) exclude: Vec<Excluded>,

    /// Also trace child processes of --pid
    ///
    /// Child processes of a command are traced unless --no-children is given. Probes then apply to all processes that
    /// use the same libraries; the others are slowed down a little.
    #[arg(long, overrides_with = "no_children", hide_short_help = true, help_heading = TARGET)]
    pub(in crate::cli) children: bool,

    /// Trace only the process of the command
    #[arg(long, overrides_with = "children", hide_short_help = true, help_heading = TARGET)]
    pub(in crate::cli) no_children: bool,

    /// Start this command and trace it from its first instruction to its end
    ///
    /// Under sudo, the command runs as the user that called sudo.
    #[arg(last = true, value_names = ["CMD", "ARGS"], num_args = 1.., help_heading = TARGET)]
    pub(in crate::cli) command: Vec<OsString>,
}
