//! `memtrace threads`: its options, configuration and exit code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, value_parser};
use memtrace_history::triggers::Condition;
use memtrace_model::{Bytes, ThreadColumn, printable};
use memtrace_report::Format;

use super::console::Console;
use super::terminal::Terminal;
use super::{exit, logging};
use crate::options::conflict::ArgConflict;
use crate::options::headings::{OUTPUT, TARGET, TRIGGERS, TUNING};
use crate::options::possible_values;
use crate::options::source::AllocationSource;
use crate::options::{GeneralArgs, SamplingArgs, TargetArgs, check_interval, check_size_limit};
use crate::options::{hooks, units};
use crate::run_kit::config::Recording;
use crate::targets::select::Target;
use crate::threads::{SourceChoice, ThreadsConfig, ThreadsFormat, TriggeredTrace};
use memtrace_object::allocators::{NamedAllocator, UserHooks};

const DEFAULT_SIZE: Bytes = Bytes(300 << 20);

/// Options of `memtrace threads`.
#[derive(Debug, Args)]
pub(super) struct ThreadsArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Also count the blocks of the allocator in this object, perhaps with prefixed functions
    #[arg(long = "allocator", value_name = "OBJECT[:PREFIX]", value_parser = hooks::allocator, hide_short_help = true, help_heading = TARGET)]
    allocators: Vec<NamedAllocator>,

    /// Stop after this time, as in 30s, 5m or 1h30m
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, help_heading = TARGET)]
    duration: Option<Duration>,

    /// Read the counters at this interval, as in 10s; at least 100ms
    #[arg(
        short,
        long,
        value_name = "DURATION",
        value_parser = units::duration,
        default_value = "1s",
        help_heading = OUTPUT
    )]
    interval: Duration,

    /// Show one interval, and end
    #[arg(long, help_heading = OUTPUT)]
    once: bool,

    /// Write this format to standard output [default: text]
    #[arg(long, value_parser = threads_formats(), help_heading = OUTPUT)]
    format: Option<ThreadsFormat>,

    /// Write a trace for Perfetto into this file, *.pftrace
    ///
    /// It is written during the run, and has its name at the end. Other formats are those of recordings: --record.
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    output: Option<PathBuf>,

    /// Record the intervals into this file, an SQLite database
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    record: Option<PathBuf>,

    /// Limit the size of the recording, as in 200MiB; at least 4MiB [default: 300MiB]
    ///
    /// Old intervals are merged into longer ones, so that a recording can run for weeks.
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "record", hide_short_help = true, help_heading = OUTPUT)]
    size_limit: Option<Bytes>,

    /// Receive marks of the recording at this Unix socket
    #[arg(long, value_name = "PATH", requires = "record", hide_short_help = true, help_heading = OUTPUT)]
    socket: Option<PathBuf>,

    /// Sort the threads of texts by this column, the largest first
    #[arg(long, value_name = "COLUMN", value_parser = thread_columns(), default_value = "net", hide_possible_values = true, help_heading = OUTPUT)]
    sort: ThreadColumn,

    /// Show N threads in texts
    #[arg(long, value_name = "N", default_value_t = 40, help_heading = OUTPUT)]
    top: usize,

    /// Set a mark and print a line when this condition becomes true, as in 'net > 1GiB/min' or 'rss > 2GiB'
    ///
    /// May be given more than once. The line is printed with -q too. A condition is SUBJECT.FIELD, a comparison and a limit.
    /// Subjects are process, thread, machine and cgroup. Fields are net, alloc, free, rss, swap, descriptors, threads, cpu,
    /// run_delay, major_faults, switches, read and write; available, cpu, pressure, cpu_pressure and io_pressure of the
    /// machine; memory and pressure of a cgroup. A limit has a unit, as in 2GiB or 20%, and amounts have a period: /s, /min
    /// or /h. It fires again after the condition has not been true for a minute.
    #[arg(long, value_name = "CONDITION", help_heading = TRIGGERS)]
    when: Vec<Condition>,

    /// Start a full trace of the process when a condition becomes true, as in trace:30s
    ///
    /// At most one at a time, and ten an hour.
    #[arg(long, value_name = "trace:DURATION", value_parser = triggered_trace, requires = "when", help_heading = TRIGGERS)]
    then: Option<Duration>,

    /// Write the reports of these traces into this directory [default: .]
    #[arg(long, value_name = "DIRECTORY", requires = "then", hide_short_help = true, help_heading = TRIGGERS)]
    then_dir: Option<PathBuf>,

    /// Read the counters of the heap from here
    #[arg(long, value_name = "SOURCE", value_parser = counter_sources(), default_value = "auto", hide_short_help = true, help_heading = TUNING)]
    source: SourceChoice,

    /// Keep separate values of at most N threads; the others are summed for each process
    #[arg(long, value_name = "N", default_value_t = 10_000, hide_short_help = true, help_heading = TUNING)]
    max_threads: usize,

    /// Exempt memtrace from the OOM killer, and lock its memory
    #[arg(long, hide_short_help = true, help_heading = TUNING)]
    protect: bool,

    /// Read the counters with this real-time priority, from 1 to 99
    ///
    /// The thread that reads them then runs before all threads that are not real-time tasks. It runs for less than a
    /// millisecond at each interval.
    #[arg(long, value_name = "PRIORITY", value_parser = value_parser!(u8).range(1..=99), hide_short_help = true, help_heading = TUNING)]
    realtime: Option<u8>,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    general: GeneralArgs,
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

/// Runs `memtrace threads`.
pub(super) fn run(args: ThreadsArgs, console: &Console) -> ExitCode {
    let (quiet, verbose) = (args.general.quiet, args.general.verbose);
    let config = match config(args) {
        Ok(config) => config,
        Err(conflict) => return exit::of_conflict(&conflict, console).into(),
    };
    logging::start(console, quiet, verbose);
    let has_command = matches!(config.target, Target::Command { .. });
    let outcome = crate::threads::run(&config, &mut Terminal::new(console.clone(), quiet, has_command));
    console.clear();
    match outcome {
        Ok(outcome) => exit::of_outcome(&outcome, false, console).into(),
        Err(error) => exit::of_error(&error, console).into(),
    }
}

/// Returns the configuration of the thread monitor.
fn config(args: ThreadsArgs) -> Result<ThreadsConfig, ArgConflict> {
    check_interval(args.interval)?;
    if args.max_threads == 0 {
        return Err(ArgConflict::new("--max-threads 0 shows no thread", "give at least 1"));
    }
    args.target.refuse_excluded_threads("monitored threads")?;
    args.sampling.check(AllocationSource::default())?;
    if let Some(option) = args.sampling.given().filter(|_| args.then.is_none()) {
        return Err(ArgConflict::new(
            format!("{option} is for the traces that triggers start, and --then is not given"),
            "remove it, or start a trace, as in --when 'rss > 2GiB' --then trace:30s",
        ));
    }
    let size_limit = args.size_limit.unwrap_or(DEFAULT_SIZE);
    check_size_limit(size_limit)?;
    if let Some(path) = args.output.as_deref().filter(|path| Format::of_path(path) != Some(Format::Perfetto)) {
        return Err(not_live(path));
    }
    let target = args.target.resolve(false)?;
    let recording = args.record.map(|path| Recording {
        path,
        interval: args.interval,
        size_limit,
        socket: args.socket,
        mark_functions: Vec::new(),
    });
    // With a recording or a trace for Perfetto, the table is shown only for `--once` or `--format text`.
    let has_file = recording.is_some() || args.output.is_some();
    let output = args.format.or(if has_file && !args.once { None } else { Some(ThreadsFormat::Table) });
    Ok(ThreadsConfig {
        target,
        duration: args.duration,
        interval: args.interval,
        once: args.once,
        output,
        trace: args.output,
        recording,
        rows: args.top,
        max_threads: args.max_threads,
        source: args.source,
        user_hooks: UserHooks { allocators: args.allocators, hooks: Vec::new() },
        protect: args.protect,
        realtime: args.realtime,
        sort: args.sort,
        conditions: args.when,
        then: args.then.map(|duration| TriggeredTrace {
            duration,
            directory: args.then_dir.unwrap_or_else(|| PathBuf::from(".")),
            options: args.sampling.arguments(),
        }),
    })
}

/// Returns the error for an output file in a format that the thread monitor does not write.
fn not_live(path: &Path) -> ArgConflict {
    let name = printable(path);
    if path.as_os_str() == "-" {
        return ArgConflict::new("a trace for Perfetto goes to a file", "name it *.pftrace, or use --format");
    }
    ArgConflict::new(
        format!("threads are not written to {name} during a run, only to *.pftrace"),
        format!("record them with --record FILE, and use `memtrace report --view threads -o {name} FILE`"),
    )
}

fn threads_formats() -> impl TypedValueParser<Value = ThreadsFormat> {
    possible_values::one_of(ThreadsFormat::ALL, |format| {
        let help = match format {
            ThreadsFormat::Table => "a table of the threads, which changes in place on a terminal",
            ThreadsFormat::Csv => "comma-separated values, a row for each thread, process and interval",
            ThreadsFormat::Json => "JSON lines, one for each interval",
        };
        PossibleValue::new(format.name()).help(help)
    })
}

fn thread_columns() -> impl TypedValueParser<Value = ThreadColumn> {
    possible_values::one_of(ThreadColumn::ALL, |column| PossibleValue::new(column.name()))
}

fn counter_sources() -> impl TypedValueParser<Value = SourceChoice> {
    possible_values::one_of(SourceChoice::ALL, |source| {
        let help = match source {
            SourceChoice::Auto => "the counters of the allocator if it has any (jemalloc), otherwise probes",
            SourceChoice::Allocator => "the counters of the allocator only",
            SourceChoice::Bpf => "probes only",
        };
        PossibleValue::new(source.name()).help(help)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::{Action, Arguments};
    use super::*;

    fn parse(line: &str) -> Result<(Option<PathBuf>, Option<ThreadsFormat>), String> {
        let words = ["memtrace", "threads"].into_iter().chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        let Some(Action::Threads(args)) = arguments.action else { panic!("not threads") };
        config(*args).map(|config| (config.trace, config.output)).map_err(|conflict| conflict.message)
    }

    #[test]
    fn trace_replaces_the_table() {
        let trace = || Some(PathBuf::from("a.pftrace"));
        assert_eq!(parse("-a"), Ok((None, Some(ThreadsFormat::Table))));
        assert_eq!(parse("-a -o a.pftrace"), Ok((trace(), None)));
        assert_eq!(parse("-a -o a.pftrace --format csv"), Ok((trace(), Some(ThreadsFormat::Csv))));
        assert_eq!(parse("-a -o a.pftrace --once"), Ok((trace(), Some(ThreadsFormat::Table))));
    }

    #[test]
    fn options_of_samples_are_passed_to_triggered_traces() {
        let options = |line: &str| {
            let words = ["memtrace", "threads", "-a", "--when", "rss > 2GiB"].into_iter();
            let arguments = Arguments::try_parse_from(words.chain(line.split_whitespace())).expect("valid arguments");
            let Some(Action::Threads(args)) = arguments.action else { panic!("not threads") };
            config(*args).map(|config| config.then.map(|then| then.options)).map_err(|conflict| conflict.message)
        };
        assert_eq!(options("--then trace:30s"), Ok(Some(Vec::new())));
        let expected = vec![String::from("--sample-interval=1048576"), String::from("--allow-patching")];
        assert_eq!(options("--then trace:30s --sample-interval 1MiB --allow-patching"), Ok(Some(expected)));
        let refused = "--allow-patching is for the traces that triggers start, and --then is not given";
        assert_eq!(options("--allow-patching"), Err(String::from(refused)));
    }

    #[test]
    fn other_formats_need_a_recording() {
        let refused = "threads are not written to a.svg during a run, only to *.pftrace";
        assert_eq!(parse("-a -o a.svg"), Err(String::from(refused)));
        assert_eq!(parse("-a -o -"), Err(String::from("a trace for Perfetto goes to a file")));
    }
}
