//! The command line as given: each argument parsed, combinations not checked yet.

mod activity;
mod headings;
mod possible_values;
mod subcommands;
mod target;
#[cfg(test)]
mod tests;
mod threads;
mod working_set;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, value_parser};
use memtrace_model::{AccountColumn, Bytes, DEFAULT_FRAMES, EventClass, GroupBy, MAX_FRAMES, MAX_RINGS, Metric};
use memtrace_report::Format;

pub(super) use activity::ActivityArgs;
pub(super) use subcommands::{
    DiffArgs, DoctorArgs, ExplainArgs, HelpFlag, MarkArgs, RecordingView, ReportArgs, ResetArgs,
};
pub(super) use target::TargetArgs;
pub(super) use threads::ThreadsArgs;
pub(super) use working_set::WorkingSetArgs;

use self::headings::{FILTERS, GENERAL, OUTPUT, TARGET, TUNING};
use super::hooks::TaggedHooks;
use super::tag_functions::{TagFrom, tag_from};
use super::{filters, help, hooks, units};
use crate::run_kit::config::{MarkFunction, Moment};
use crate::targets::select::ProbeSite;
use crate::trace::config::{BlockSizes, Percent};
use memtrace_object::allocators::NamedAllocator;

/// Number of ended processes with entries of their own.
pub(super) const DEFAULT_KEEP_ENDED: usize = 1000;

/// Shows which code holds the memory of a running Linux system
///
/// memtrace attaches to running processes, without a restart and without injecting code, and records every allocation
/// and free. Then it draws a flame graph of the bytes that are still live, by allocating stack. It ends after
/// --duration, on Ctrl-C or SIGTERM, or when its target ends. It needs root, or the capabilities that `memtrace doctor`
/// lists.
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
    Faults(Box<TraceArgs>),
    /// Trace reclaim: stalls on memory, and OOM kills. Short for --events reclaim
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::RECLAIM_USAGE)]
    Reclaim(Box<TraceArgs>),
    /// Trace mappings: their size, and their resident part. Short for --events map
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::MAPS_USAGE)]
    Maps(Box<TraceArgs>),
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
    /// Explain the memory of a process without tracing it: its RSS by part, and the rest
    #[command(disable_help_flag = true)]
    Explain(ExplainArgs),
    /// Check this machine for everything that tracing needs
    #[command(disable_help_flag = true)]
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    #[command(disable_help_flag = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,

        #[command(flatten)]
        help: HelpFlag,
    },
    /// Print the man page, in roff
    #[command(disable_help_flag = true)]
    Man {
        #[command(flatten)]
        help: HelpFlag,
    },
}

/// The arguments of `memtrace accounts`.
#[derive(Debug, Args)]
pub(super) struct AccountsArgs {
    #[command(flatten)]
    pub(super) trace: TraceArgs,

    /// Sort the table by this column, the largest first
    #[arg(
        long,
        value_name = "COLUMN",
        value_parser = possible_values::account_columns(),
        default_value = "current",
        hide_possible_values = true,
        help_heading = OUTPUT
    )]
    pub(super) sort: AccountColumn,
}

/// The arguments of a trace.
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,

    #[command(flatten)]
    pub(super) activity: ActivityArgs,

    /// Count only blocks that threads with this name allocate
    ///
    /// The name at the allocation, of at most 15 bytes. May be given more than once. Other blocks count as filtered. Frees
    /// by any thread count.
    #[arg(long = "thread", value_name = "NAME", value_parser = filters::thread, hide_short_help = true, help_heading = TARGET)]
    pub(super) threads: Vec<String>,

    /// Also trace the allocator in this object, perhaps with prefixed functions
    ///
    /// May be given more than once. Allocators that define malloc and free are found without it; this is for others, as
    /// in libpool.so:pool_ for pool_malloc, pool_free and related functions. The object is a path, a file name or a
    /// soname.
    #[arg(long = "allocator", value_name = "OBJECT[:PREFIX]", value_parser = hooks::allocator, hide_short_help = true, help_heading = TARGET)]
    pub(super) allocators: Vec<NamedAllocator>,

    /// Also trace these functions, as in 'alloc=take(size=arg0)->ret,free=give(arg0)'
    ///
    /// May be given more than once. For pools with functions of their own: allocations inside these functions are not
    /// counted. A size may be a product, size=arg0*arg1; an address may be stored through an argument, ->arg0; and a
    /// function may reallocate, realloc=grow(old=arg0,size=arg1)->ret. A block can have a tag, tag=arg1, or tagname=arg1 for a
    /// C string.
    #[arg(long = "hook", value_name = "FUNCTIONS", value_parser = hooks::hooks, hide_short_help = true, help_heading = TARGET)]
    pub(super) hooks: Vec<TaggedHooks>,

    /// Trace these event classes, as in heap,reclaim [default: heap]
    ///
    /// Each class has a report of its own, since classes overlap. With several classes, file names contain the class:
    /// memtrace.heap.svg.
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', value_parser = possible_values::event_classes(), hide_short_help = true, help_heading = TARGET)]
    pub(super) events: Vec<EventClass>,

    /// Stop after this time, as in 30s, 5m or 1h30m
    ///
    /// Units are ms, s, m, h and d. By default, memtrace traces until Ctrl-C, SIGTERM or the end of the target.
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, help_heading = TARGET)]
    pub(super) duration: Option<Duration>,

    /// Exit with the command's exit code
    ///
    /// If a signal killed the command, the exit code is 128 plus the signal's number. Only with a command. If memtrace
    /// itself fails, its own exit code takes precedence.
    #[arg(long, hide_short_help = true, help_heading = TARGET)]
    pub(super) exit_code: bool,

    /// Write to this file; '-' is standard output [default: memtrace.svg]
    ///
    /// May be given more than once. The extension determines the format: .svg, .html, .folded, .json, .txt, .pb.gz (pprof), .pftrace (Perfetto),
    /// .firefox.json, .speedscope.json or .heaptrack.zst. Files are opened before tracing starts. A file with the extension .memtrace is a recording, as with --record.
    #[arg(short, long = "output", value_name = "FILE", help_heading = OUTPUT)]
    pub(super) outputs: Vec<PathBuf>,

    /// Add a heap profile of this time to Perfetto traces, as in +60s, in addition to those of marks and of the end
    ///
    /// Perfetto shows the differences between consecutive heap profiles. May be given more than once; at most 32 are written. The
    /// trace is recorded for it, into a temporary file without --record.
    #[arg(
        long = "heap-profile",
        value_name = "TIME",
        value_parser = units::moment,
        allow_hyphen_values = true,
        hide_short_help = true, help_heading = OUTPUT
    )]
    pub(super) heap_profiles: Vec<Moment>,

    /// Record the changes of each interval into this file, an SQLite database
    ///
    /// It can be read during the trace, and survives the end of memtrace by a signal.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) record: Option<PathBuf>,

    /// Record at this interval, as in 10s; at least 100ms [default: 1s]
    ///
    /// Also the interval of the values of memory over time in .html, .pftrace and .firefox.json, and of accounts in .pftrace.
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, hide_short_help = true, help_heading = OUTPUT)]
    pub(super) interval: Option<Duration>,

    /// Limit the size of the recording, as in 200MiB; at least 4MiB [default: 1GiB]
    ///
    /// Old intervals are merged into longer ones, so that a recording can run for weeks. Totals at the ends of the
    /// intervals that remain are exact, and marks remain.
    #[arg(long, value_name = "SIZE", value_parser = units::size, hide_short_help = true, help_heading = OUTPUT)]
    pub(super) size_limit: Option<Bytes>,

    /// Receive marks of the recording, or resets of accounts, at this Unix socket
    ///
    /// For `memtrace mark --socket PATH` and `memtrace reset --socket PATH`. By default, it is in /run/memtrace for root, and in a directory of the user for
    /// others. Only root and the user of memtrace can set marks.
    #[arg(long, value_name = "PATH", hide_short_help = true, help_heading = OUTPUT)]
    pub(super) socket: Option<PathBuf>,

    /// Set a mark of the recording at each entry of this function
    ///
    /// EXE is the path of an executable or library, FUNCTION one of its symbols or its demangled name. Entries by traced
    /// processes count. A mark is set as soon as memtrace learns of the entry, usually within a millisecond. May be given
    /// more than once.
    #[arg(long, value_name = "EXE:FUNCTION", value_parser = hooks::mark_function, hide_short_help = true, help_heading = OUTPUT)]
    pub(super) mark_on: Vec<MarkFunction>,

    /// Show the top sites at this interval, as in 10s; at least 1s
    ///
    /// On standard error, with the live bytes of all processes and the innermost functions of each site. --top sets the number
    /// of sites. Source lines and inlined functions are in the report only.
    #[arg(long, value_name = "DURATION", value_parser = units::duration, conflicts_with = "quiet", hide_short_help = true, help_heading = OUTPUT)]
    pub(super) every: Option<Duration>,

    /// Set the format of outputs without a known extension
    ///
    /// Required for '-' and for files with another extension. A known extension takes precedence. Without --output, it
    /// determines the extension of the default file.
    #[arg(long, value_parser = possible_values::formats(), hide_short_help = true, help_heading = OUTPUT)]
    pub(super) format: Option<Format>,

    /// Download debug files of stripped objects after the trace [default: as DEBUGINFOD_URLS]
    ///
    /// From debuginfod servers at these URLs, separated by blanks, or else at those in DEBUGINFOD_URLS or in
    /// /etc/debuginfod. Build IDs are sent to the servers. 'off' contacts none. Files are stored in
    /// DEBUGINFOD_CACHE_PATH or ~/.cache/debuginfod_client. DEBUGINFOD_TIMEOUT and DEBUGINFOD_MAXSIZE apply.
    #[arg(long, value_name = "URLS", num_args = 0..=1, require_equals = true, default_missing_value = "", hide_short_help = true, help_heading = OUTPUT)]
    pub(super) debuginfod: Option<String>,

    /// Draw this metric, and rank stacks by it [default: live-bytes]
    ///
    /// If all traced processes have ended, nothing is live, and the default is exit-bytes; alloc-bytes for page faults
    /// and mappings. For reclaim it is stall-time.
    #[arg(short, long, value_parser = possible_values::metrics(), help_heading = OUTPUT)]
    pub(super) metric: Option<Metric>,

    /// Group stacks by this key [default: process; tag with --tags or --tag-from]
    ///
    /// The key is the root of the flame graph and of folded stacks, and the summary has a table of it. The JSON always
    /// contains the processes. Allocators are recorded only if they are the key, and threads also if rules of --tags
    /// name them. `memtrace accounts` takes several keys, as in --by process,thread.
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = possible_values::group_keys(), help_heading = OUTPUT)]
    pub(super) by: Vec<GroupBy>,

    /// Group stacks by the tags of the rules in this file
    ///
    /// Each rule of the TOML file has a tag, and patterns for the function, object, source file or thread. A stack has
    /// the tag of its innermost frame that matches a rule. `memtrace report --tags` applies rules to recordings.
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = OUTPUT)]
    pub(super) tags: Option<PathBuf>,

    /// Tag blocks as these functions of the program say, as in 'set=set_module(id=arg0)'
    ///
    /// May be given more than once, and with several functions: set=FUNC(id=argN) sets the tag of the thread to an
    /// argument, enter=FUNC(id=argN),leave=FUNC nest, get=FUNC()->ret sets it to a result, and process=FUNC(id=argN)
    /// sets that of threads without one. name=argN is a C string, id=argN:32 a number of 32 bits, and if=argN==VALUE a
    /// condition. A file can precede the function, as in set=/usr/bin/server:set_module(id=arg0). `probes` takes the tags
    /// from the probes of memtrace.h in all objects of the targets, and FILE:probes from those of a file. A block keeps the
    /// tag with which it was allocated.
    #[arg(long, value_name = "FUNCTIONS", value_parser = tag_from, hide_short_help = true, help_heading = OUTPUT)]
    pub(super) tag_from: Vec<TagFrom>,

    /// Count the requested or the usable size of each block [default: requested]
    ///
    /// The usable size is that of malloc_usable_size. It is known for glibc; blocks of other allocators are counted with
    /// their requested size, and as lost events (size_requested).
    #[arg(long, value_name = "SIZES", value_parser = possible_values::block_sizes(), hide_short_help = true, help_heading = OUTPUT)]
    pub(super) size: Option<BlockSizes>,

    /// List N sites and N processes in the summary [default: 10; 40 accounts]
    #[arg(long, value_name = "N", help_heading = OUTPUT)]
    pub(super) top: Option<usize>,

    /// Count blocks by size, lifetime and age
    ///
    /// Histograms have buckets of powers of two, for all blocks and for each stack. The summary states the times below
    /// which 50% and 90% of the freed blocks of a site lived; the JSON contains all counts. Each stack usually takes
    /// 100 bytes more, and at most 1 KiB.
    #[arg(long, hide_short_help = true, help_heading = OUTPUT)]
    pub(super) lifetimes: bool,

    /// Keep separate entries for the N largest processes that have ended
    ///
    /// The others are added up, with their stacks, by executable, control group and user, and shown as in g++ ×412. Sums
    /// are exact. With 0, all are added up.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_KEEP_ENDED, hide_short_help = true, help_heading = OUTPUT)]
    pub(super) keep_ended: usize,

    /// Write every stack and process
    ///
    /// By default, a JSON file has at most 40MiB and a picture at most 5MiB: the smallest stacks and processes are shown
    /// as sums, as in [other: 12,345 stacks]. Sums are exact. The summary always includes every stack.
    #[arg(long, hide_short_help = true, help_heading = OUTPUT)]
    pub(super) all_stacks: bool,

    /// Ignore allocations smaller than this, as in 4096, 64KiB or 1M
    ///
    /// Units are powers of 1024. Smaller allocations are filtered in the kernel, and the report shows their number.
    #[arg(long, value_name = "SIZE", value_parser = units::size, help_heading = FILTERS)]
    pub(super) min_size: Option<Bytes>,

    /// Ignore allocations larger than this
    #[arg(long, value_name = "SIZE", value_parser = units::size, hide_short_help = true, help_heading = FILTERS)]
    pub(super) max_size: Option<Bytes>,

    /// Sample one page in N [default: 1]
    ///
    /// For page faults, to trace them all the time. The numbers of stacks are then estimates, shown with their standard
    /// error (±), except in folded stacks. The resident bytes and page faults of a process remain exact, since the
    /// kernel counts them.
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = FILTERS)]
    pub(super) sample: Option<NonZeroU32>,

    /// Count as live only blocks that are at least this old
    ///
    /// Applies to blocks held at exit too. Only with the metrics live-bytes, live-count, exit-bytes and exit-count, and
    /// not longer than --duration.
    #[arg(long, value_name = "DURATION", value_parser = units::duration, help_heading = FILTERS)]
    pub(super) older: Option<Duration>,

    /// Measure which live bytes are cold: not touched for this time
    ///
    /// Before the report is written, memtrace watches for this time which pages the traced processes touch. The report has
    /// the metrics hot-bytes and cold-bytes, and draws cold-bytes by default. Needs a kernel with
    /// CONFIG_IDLE_PAGE_TRACKING; with CONFIG_MEM_SOFT_DIRTY only, pages that are only read are cold too.
    #[arg(long, value_name = "DURATION", value_parser = units::duration, hide_short_help = true, help_heading = FILTERS)]
    pub(super) cold_after: Option<Duration>,

    /// Limit the additional processor time of the target, as in 10%
    ///
    /// memtrace estimates its overhead from the target's allocation rate at the start. If the estimate exceeds the
    /// limit, only larger allocations are traced; if that is not enough, nothing is traced. Not with a command.
    #[arg(long, value_name = "PERCENT", value_parser = units::percent, conflicts_with = "command", hide_short_help = true, help_heading = TUNING)]
    pub(super) max_overhead: Option<Percent>,

    /// Record at most N frames of a stack, 0 to 256; 0 records no stacks
    #[arg(
        long,
        value_name = "N",
        value_parser = value_parser!(u32).range(..=MAX_FRAMES as i64),
        default_value_t = DEFAULT_FRAMES,
        hide_short_help = true, help_heading = TUNING
    )]
    pub(super) max_depth: u32,

    /// Process events in N rings and threads, 1 to 16 [default: by processors]
    ///
    /// The report is the same for each number. The metric peak-bytes needs a single shard.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_RINGS)), hide_short_help = true, help_heading = TUNING)]
    pub(super) shards: Option<u32>,

    /// Set the size of each ring buffer
    ///
    /// A power of two from 4KiB to 2GiB. Events wait there for memtrace; a larger ring absorbs longer bursts. Increase
    /// it if the report lists events lost to a full ring.
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "16MiB", hide_short_help = true, help_heading = TUNING)]
    pub(super) ring_size: Bytes,

    /// Probe these instructions of each function
    ///
    /// The other values cost more; use them for comparisons.
    #[arg(long, value_name = "WHICH", value_parser = possible_values::probe_sites(), default_value = "best", hide_short_help = true, help_heading = TUNING)]
    pub(super) probe_site: ProbeSite,

    /// Keep at most this number of live blocks
    ///
    /// For example 500k or 32M; units are powers of 1000. A block takes at most 80 bytes of memory. Beyond the limit,
    /// allocations are counted as lost.
    #[arg(long, value_name = "BLOCKS", value_parser = units::count, default_value = "32M", hide_short_help = true, help_heading = TUNING)]
    pub(super) max_live: u64,

    /// Use at most this memory while tracing, as in 64MiB
    ///
    /// It is for memtrace's own memory, BPF maps and rings. At least 40MiB with two shards. --ring-size and --max-live
    /// remain upper limits. With --all and selections the default is 256MiB (352MiB with a recording) or, if that is
    /// less, a quarter of the limit of the memory cgroup that memtrace runs in. --pid and commands have no limit,
    /// unless that cgroup leaves less than 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = units::size, hide_short_help = true, help_heading = TUNING)]
    pub(super) memory_limit: Option<Bytes>,

    /// Protect memtrace from the OOM killer, and lock its memory
    ///
    /// For traces that run all the time. In a cgroup with a memory limit, it is killed last instead of never. Each part that
    /// the system denies is a warning. Free memory is not returned to the system then.
    #[arg(long, hide_short_help = true, help_heading = TUNING)]
    pub(super) protect: bool,

    /// Show neither progress nor summary
    ///
    /// The line that begins with 'attached', and errors, are still shown.
    #[arg(short, long, conflicts_with = "verbose", help_heading = GENERAL)]
    pub(super) quiet: bool,

    /// Log more; -vv for debugging
    #[arg(short, long, action = ArgAction::Count, hide_short_help = true, help_heading = GENERAL)]
    pub(super) verbose: u8,

    /// Print help: -h the options that are used most, --help all
    #[arg(short, long, action = ArgAction::Help, help_heading = GENERAL)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = GENERAL)]
    version: Option<bool>,
}
