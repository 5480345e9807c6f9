//! Parsed command line: the commands and their options. Conflicts between options are checked later.

#[cfg(test)]
mod tests;

use clap::{Parser, Subcommand};

#[cfg(test)]
pub(crate) use tests::{parsed_trace, refusal_of_trace, resolved_trace};

use super::accounts::AccountsArgs;
use super::detach::DetachArgs;
use super::diff::DiffArgs;
use super::doctor::DoctorArgs;
use super::explain::ExplainArgs;
use super::help;
use super::mark::{MarkArgs, ResetArgs};
use super::report::ReportArgs;
use super::threads::ThreadsArgs;
use super::trace::{FaultsArgs, MapsArgs, ReclaimArgs, TraceArgs};
use super::working_set::WorkingSetArgs;
use crate::options::HelpFlag;

/// Shows which code holds the memory of a running Linux system
///
/// memtrace attaches to running processes, without a restart and without injecting code, and records every allocation
/// and free. Then it draws a flame graph of the bytes that are still live, by allocating stack. It ends after
/// --duration, on Ctrl-C or SIGTERM, or when its target ends. It needs root, or the capabilities that `memtrace doctor`
/// lists. Only --allow-patching permits it to change code of a process.
#[derive(Debug, Parser)]
#[command(
    name = "memtrace",
    version,
    override_usage = help::USAGE,
    after_help = help::SHORT_END,
    after_long_help = help::long_end(),
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    disable_help_flag = true,
    disable_version_flag = true,
    disable_help_subcommand = true
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) action: Option<Action>,

    #[command(flatten)]
    pub(super) trace: TraceArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Trace page faults: code that keeps pages resident. Short for --events fault
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::FAULTS_USAGE)]
    Faults(Box<FaultsArgs>),
    /// Trace reclaim: stalls on memory, and OOM kills. Short for --events reclaim
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::RECLAIM_USAGE)]
    Reclaim(Box<ReclaimArgs>),
    /// Trace mappings: their size, and their resident part. Short for --events map
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::MAPS_USAGE)]
    Maps(Box<MapsArgs>),
    /// Record the changes of each interval, for `report` or SQL. Short for -o run.memtrace
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::RECORD_USAGE)]
    Record(Box<TraceArgs>),
    /// Count blocks by process, user, thread and others, with low and high water marks
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::ACCOUNTS_USAGE)]
    Accounts(Box<AccountsArgs>),
    /// Monitor threads at each interval: blocks, processor time, I/O and page faults
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::THREADS_USAGE)]
    Threads(Box<ThreadsArgs>),
    /// Measure working sets: the resident memory of processes that is touched within a time
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::WSS_USAGE)]
    Wss(Box<WorkingSetArgs>),
    /// Set a mark in a running recording: totals at the mark are exact
    #[command(disable_help_flag = true)]
    Mark(MarkArgs),
    /// Start new water marks in a running `memtrace accounts`
    #[command(disable_help_flag = true)]
    Reset(ResetArgs),
    /// Report on a recording: on the totals at a time, or on the changes between two times
    #[command(disable_help_flag = true)]
    Report(Box<ReportArgs>),
    /// Compare two reports: sites that grew, shrank, appeared and vanished
    #[command(disable_help_flag = true)]
    Diff(DiffArgs),
    /// Explain the memory of processes or of a control group at once, without tracing it
    #[command(disable_help_flag = true, override_usage = help::EXPLAIN_USAGE)]
    Explain(Box<ExplainArgs>),
    /// Check this machine for everything that tracing needs
    #[command(disable_help_flag = true)]
    Doctor(DoctorArgs),
    /// Restore the code of processes that a killed memtrace has left patched
    #[command(disable_help_flag = true, override_usage = help::DETACH_USAGE)]
    Detach(DetachArgs),
    /// Print a completion script for a shell
    #[command(disable_help_flag = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,

        #[command(flatten)]
        help: HelpFlag,
    },
    // Hidden: the list of commands already fills a page, and the last line of the short help names this command.
    /// Print the man page, in roff
    #[command(hide = true, disable_help_flag = true)]
    Man {
        #[command(flatten)]
        help: HelpFlag,
    },
    // Hidden: the list of commands already fills a page, and a reader of the list has already found the help.
    /// Print the help, as --help does
    #[command(hide = true, disable_help_flag = true)]
    Help {
        /// The command to print the help of [default: memtrace itself]
        command: Option<String>,

        #[command(flatten)]
        help: HelpFlag,
    },
}
