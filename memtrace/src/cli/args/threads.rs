//! Arguments of `memtrace threads`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, value_parser};
use memtrace_history::triggers::Condition;
use memtrace_model::{Bytes, ThreadColumn};

use super::TargetArgs;
use super::headings::{GENERAL, OUTPUT, TARGET, TRIGGERS, TUNING};
use super::possible_values;
use crate::cli::{hooks, units};
use crate::threads::{MonitorFormat, SourceChoice};
use memtrace_object::allocators::NamedAllocator;

/// The arguments, as given.
#[derive(Debug, Args)]
pub(in crate::cli) struct ThreadsArgs {
    #[command(flatten)]
    pub(in crate::cli) target: TargetArgs,

    /// Also count the blocks of the allocator in this object, perhaps with prefixed functions
    #[arg(long = "allocator", value_name = "OBJECT[:PREFIX]", value_parser = hooks::allocator, hide_short_help = true, help_heading = TARGET)]
    pub(in crate::cli) allocators: Vec<NamedAllocator>,

    /// Stop after this time, as in 30s, 5m or 1h30m
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, help_heading = TARGET)]
    pub(in crate::cli) duration: Option<Duration>,

    /// Read the counters at this interval, as in 10s; at least 100ms
    #[arg(
        short,
        long,
        value_name = "DURATION",
        value_parser = units::duration,
        default_value = "1s",
        help_heading = OUTPUT
    )]
    pub(in crate::cli) interval: Duration,

    /// Show one interval, and end
    #[arg(long, help_heading = OUTPUT)]
    pub(in crate::cli) once: bool,

    /// Write this format to standard output [default: text]
    #[arg(long, value_parser = possible_values::monitor_formats(), help_heading = OUTPUT)]
    pub(in crate::cli) format: Option<MonitorFormat>,

    /// Write a trace for Perfetto into this file, *.pftrace
    ///
    /// It is written during the run, and has its name at the end. Other formats are those of recordings: --record.
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    pub(in crate::cli) output: Option<PathBuf>,

    /// Record the intervals into this file, an SQLite database
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(in crate::cli) record: Option<PathBuf>,

    /// Limit the size of the recording, as in 200MiB; at least 4MiB [default: 300MiB]
    ///
    /// Old intervals are merged into longer ones, so that a recording can run for weeks.
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "record", hide_short_help = true, help_heading = OUTPUT)]
    pub(in crate::cli) size_limit: Option<Bytes>,

    /// Receive marks of the recording at this Unix socket
    #[arg(long, value_name = "PATH", requires = "record", hide_short_help = true, help_heading = OUTPUT)]
    pub(in crate::cli) socket: Option<PathBuf>,

    /// Sort the threads of texts by this column, the largest first
    #[arg(long, value_name = "COLUMN", value_parser = possible_values::thread_columns(), default_value = "net", hide_possible_values = true, help_heading = OUTPUT)]
    pub(in crate::cli) sort: ThreadColumn,

    /// Show N threads in texts
    #[arg(long, value_name = "N", default_value_t = 40, help_heading = OUTPUT)]
    pub(in crate::cli) top: usize,

    /// Set a mark and print a line when this condition becomes true, as in 'net > 1GiB/min' or 'rss > 2GiB'
    ///
    /// May be given more than once. A condition is SUBJECT.FIELD, a comparison and a limit. Subjects are process, thread,
    /// machine and cgroup. Fields are net, alloc, free, rss, swap, descriptors, threads, cpu, run_delay, major_faults, switches,
    /// read and write; available, cpu, pressure, cpu_pressure and io_pressure of the machine; memory and pressure of a
    /// cgroup. A limit has a unit, as in 2GiB or 20%, and amounts have a period: /s, /min or /h. It fires again after the
    /// condition has not been true for a minute.
    #[arg(long, value_name = "CONDITION", help_heading = TRIGGERS)]
    pub(in crate::cli) when: Vec<Condition>,

    /// Start a full trace of the process when a condition becomes true, as in trace:30s
    ///
    /// At most one at a time, and ten an hour.
    #[arg(long, value_name = "trace:DURATION", value_parser = triggered_trace, requires = "when", help_heading = TRIGGERS)]
    pub(in crate::cli) then: Option<Duration>,

    /// Write the reports of these traces into this directory [default: .]
    #[arg(long, value_name = "DIRECTORY", requires = "then", hide_short_help = true, help_heading = TRIGGERS)]
    pub(in crate::cli) then_dir: Option<PathBuf>,

    /// Read the counters of the heap from here
    #[arg(long, value_name = "SOURCE", value_parser = possible_values::counter_sources(), default_value = "auto", hide_short_help = true, help_heading = TUNING)]
    pub(in crate::cli) source: SourceChoice,

    /// Keep separate values of at most N threads; the others are summed for each process
    #[arg(long, value_name = "N", default_value_t = 10_000, hide_short_help = true, help_heading = TUNING)]
    pub(in crate::cli) max_threads: usize,

    /// Exempt memtrace from the OOM killer, and lock its memory
    #[arg(long, hide_short_help = true, help_heading = TUNING)]
    pub(in crate::cli) protect: bool,

    /// Read the counters with this real-time priority, from 1 to 99
    ///
    /// The thread that reads them then runs before all threads that are not real-time tasks. It runs for less than a
    /// millisecond at each interval.
    #[arg(long, value_name = "PRIORITY", value_parser = value_parser!(u8).range(1..=99), hide_short_help = true, help_heading = TUNING)]
    pub(in crate::cli) realtime: Option<u8>,

    /// Show only the `attached` line and errors on standard error
    #[arg(short, long, help_heading = GENERAL)]
    pub(in crate::cli) quiet: bool,

    /// Show more messages; twice for even more
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet", hide_short_help = true, help_heading = GENERAL)]
    pub(in crate::cli) verbose: u8,

    /// Print help
    #[arg(short, long, action = ArgAction::Help, help_heading = GENERAL)]
    pub(in crate::cli) help: Option<bool>,
}

/// Parses `trace:DURATION`.
fn triggered_trace(text: &str) -> Result<Duration, String> {
    let duration = text.strip_prefix("trace:").ok_or("write trace and a duration, as in trace:30s")?;
    match units::duration(duration) {
        Ok(Duration::ZERO) => Err(String::from("a trace of 0 s traces nothing")),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}
