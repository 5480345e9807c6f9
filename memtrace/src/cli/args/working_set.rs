//! Arguments of `memtrace wss`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, value_parser};
use memtrace_model::{Pid, WorkingSetMethod};
use memtrace_report::Format;

use super::headings::{GENERAL, OUTPUT, TARGET, TUNING};
use super::possible_values;
use crate::cli::filters::Excluded;
use crate::cli::{filters, units};

/// The arguments, as given.
#[derive(Debug, Args)]
pub(in crate::cli) struct WorkingSetArgs {
    /// Measure this running process
    ///
    /// May be given more than once.
    #[arg(short, long = "pid", value_name = "PID", value_parser = units::pid, allow_negative_numbers = true, help_heading = TARGET)]
    pub(in crate::cli) pids: Vec<Pid>,

    /// Measure every process
    #[arg(short, long, help_heading = TARGET)]
    pub(in crate::cli) all: bool,

    /// Measure processes with this name, as `ps -o comm` shows it
    #[arg(long = "comm", value_name = "NAME", help_heading = TARGET)]
    pub(in crate::cli) comms: Vec<String>,

    /// Measure processes that run this executable
    #[arg(long = "exe", value_name = "PATH", hide_short_help = true, help_heading = TARGET)]
    pub(in crate::cli) exes: Vec<PathBuf>,

    /// Measure processes in or below this control group
    #[arg(long = "cgroup", value_name = "PATH", help_heading = TARGET)]
    pub(in crate::cli) cgroups: Vec<PathBuf>,

    /// Measure processes of this user, by name or id
    #[arg(long = "user", value_name = "USER", help_heading = TARGET)]
    pub(in crate::cli) users: Vec<String>,

    /// Exclude processes, as in comm=bash or user=root
    #[arg(long, value_name = "KIND=VALUE", value_parser = filters::excluded, hide_short_help = true, help_heading = TARGET)]
    pub(in crate::cli) exclude: Vec<Excluded>,

    /// Count the memory that is touched in this time, as in 10ms or 1m
    #[arg(value_name = "DURATION", value_parser = units::duration, default_value = "1s")]
    pub(in crate::cli) wait: Duration,

    /// Find touched pages by this method [default: referenced]
    #[arg(long, value_parser = possible_values::working_set_methods(), help_heading = TUNING)]
    pub(in crate::cli) method: Option<WorkingSetMethod>,

    /// Estimate the memory limit at which the processes start to page
    #[arg(long, help_heading = TUNING)]
    pub(in crate::cli) fit: bool,

    /// Freeze the processes while they are cleared and read
    ///
    /// Gives an exact measurement time. Uses the freezer of the control group (version 2), never signals. The group must not
    /// contain other processes.
    #[arg(long, hide_short_help = true, help_heading = TUNING)]
    pub(in crate::cli) pause: bool,

    /// Measure again at this interval, until Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = units::duration, conflicts_with_all = ["cumulative", "profile"], help_heading = TUNING)]
    pub(in crate::cli) every: Option<Duration>,

    /// Stop after this time, as in 30s, 5m or 1h30m
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, help_heading = TUNING)]
    pub(in crate::cli) duration: Option<Duration>,

    /// Clear the references once, and read them at each DURATION, until Ctrl-C
    #[arg(long, conflicts_with = "profile", hide_short_help = true, help_heading = TUNING)]
    pub(in crate::cli) cumulative: bool,

    /// Clear the references once, and read them N times: after --start, and after durations that double
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(2..=32), conflicts_with = "wait", help_heading = TUNING)]
    pub(in crate::cli) profile: Option<u32>,

    /// Set the shortest duration of a profile [default: 1ms]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "profile", hide_short_help = true, help_heading = TUNING)]
    pub(in crate::cli) start: Option<Duration>,

    /// Write to this file; '-' is standard output, the default. May be given more than once. The extension determines
    /// the format: .txt, .svg, .csv or .json
    #[arg(short, long = "output", value_name = "FILE", help_heading = OUTPUT)]
    pub(in crate::cli) outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = possible_values::working_set_formats(), help_heading = OUTPUT)]
    pub(in crate::cli) format: Option<Format>,

    /// Show only errors on standard error
    #[arg(short, long, help_heading = GENERAL)]
    pub(in crate::cli) quiet: bool,

    /// Show more messages; twice for even more
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet", hide_short_help = true, help_heading = GENERAL)]
    pub(in crate::cli) verbose: u8,

    /// Print help
    #[arg(short, long, action = ArgAction::Help, help_heading = GENERAL)]
    pub(in crate::cli) help: Option<bool>,
}
