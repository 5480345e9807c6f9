//! The arguments as they are given: read, each for itself, and not yet held against each other.

mod lesser;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, value_parser};

pub(super) use lesser::{Doctor, Explain, Help};

use super::{choices, help, hooks, units};
use crate::model::{Bytes, DEFAULT_FRAMES, EventClass, FilterRule, GroupBy, MAX_FRAMES, MAX_RINGS, Metric, Pid};
use crate::report::Format;
use crate::session::{Hooks, NamedAllocator, Percent, ProbeSite};

const TARGET: &str = "Target";
const OUTPUT: &str = "Output";
const FILTERS: &str = "Filters";
const TUNING: &str = "Tuning";
const GENERAL: &str = "General";

/// Shows who holds the memory of a running Linux system
///
/// memtrace attaches to processes that are already running, without a restart and with nothing injected, and follows every
/// allocation and free. Then it draws a flame graph of the bytes that are still live, by the stacks that allocated them.
/// It ends after --duration, on Ctrl-C or SIGTERM, or when its target ends. It needs root, or the capabilities that
/// `memtrace doctor` names.
#[derive(Debug, Parser)]
#[command(
    name = "memtrace",
    version,
    override_usage = help::USAGE,
    after_help = help::short_end(),
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
    pub(super) trace: Trace,
}

/// What can be done besides tracing.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Trace page faults: who keeps which pages resident. Short for --events fault
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::FAULTS_USAGE)]
    Faults(Box<Trace>),
    /// Trace waits for memory: who pays for reclaim, and who is killed. Short for --events reclaim
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::RECLAIM_USAGE)]
    Reclaim(Box<Trace>),
    /// Trace mappings: who maps how much, and how much of that is touched. Short for --events map
    #[command(version, disable_help_flag = true, disable_version_flag = true, override_usage = help::MAPS_USAGE)]
    Maps(Box<Trace>),
    /// Tell where a process' memory is, without tracing: what adds up to its RSS, and what is beside it
    #[command(disable_help_flag = true)]
    Explain(Explain),
    /// Tell what is missing for tracing on this machine, and how to get it
    #[command(disable_help_flag = true)]
    Doctor(Doctor),
    /// Print a script that completes memtrace's arguments in a shell
    #[command(disable_help_flag = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,

        #[command(flatten)]
        help: Help,
    },
    /// Print the man page, in roff
    #[command(disable_help_flag = true)]
    Man {
        #[command(flatten)]
        help: Help,
    },
}

/// What tracing is asked.
#[derive(Debug, Args)]
pub(super) struct Trace {
    /// Trace this running process
    ///
    /// May be given more than once. The pid is the one that the host sees, also for a process in a container.
    #[arg(short, long = "pid", value_name = "PID", value_parser = units::pid, allow_negative_numbers = true, help_heading = TARGET)]
    pub(super) pids: Vec<Pid>,

    /// Trace the processes of this name, as `ps -o comm` shows it
    ///
    /// Those that start later too. May be given more than once, and with --exe, --cgroup and --user: whoever fits one of them is traced.
    #[arg(long = "comm", value_name = "NAME", help_heading = TARGET)]
    pub(super) comms: Vec<String>,

    /// Trace the processes that run this program
    #[arg(long = "exe", value_name = "PATH", help_heading = TARGET)]
    pub(super) exes: Vec<PathBuf>,

    /// Trace the processes in or below this control group: a container, a service
    ///
    /// Its directory, or its path below the root of all control groups (version 2), as in system.slice/nginx.service.
    #[arg(long = "cgroup", value_name = "PATH", help_heading = TARGET)]
    pub(super) cgroups: Vec<PathBuf>,

    /// Trace the processes of this user, by name or id
    #[arg(long = "user", value_name = "USER", help_heading = TARGET)]
    pub(super) users: Vec<String>,

    /// Leave these processes out, as in comm=bash or user=root
    ///
    /// By comm, exe, cgroup, user or pid. May be given more than once. It overrules whatever else is given.
    #[arg(long, value_name = "KIND=VALUE", value_parser = choices::excluded, help_heading = TARGET)]
    pub(super) exclude: Vec<FilterRule>,

    /// Trace also the processes that --pid's start
    ///
    /// Those that a command starts are traced unless --no-children is given. Probes are then placed for everyone who uses the same libraries; whoever else runs into them is slowed down a little.
    #[arg(long, overrides_with = "no_children", help_heading = TARGET)]
    pub(super) children: bool,

    /// Trace the command's own process alone
    #[arg(long, overrides_with = "children", help_heading = TARGET)]
    pub(super) no_children: bool,

    /// Start this command and trace it, from its first instruction to its end
    ///
    /// Under sudo, the command runs as the user who called sudo.
    #[arg(last = true, value_names = ["CMD", "ARGS"], num_args = 1.., help_heading = TARGET)]
    pub(super) command: Vec<OsString>,

    /// Trace the allocator in this object too, whose functions may have a prefix
    ///
    /// May be given more than once. Allocators that define malloc and free are found by themselves; this is for others, as
    /// in libpool.so:pool_ for pool_malloc, pool_free and their like. The object is named by its path, its file or its soname.
    #[arg(long = "allocator", value_name = "OBJECT[:PREFIX]", value_parser = hooks::allocator, help_heading = TARGET)]
    pub(super) allocators: Vec<NamedAllocator>,

    /// Trace these functions too, as in 'alloc=take(size=arg0)->ret,free=give(arg0)'
    ///
    /// May be given more than once. For pools that have functions of their own: what is called inside them is not counted.
    /// A size may be a product, size=arg0*arg1, a block's address may be stored through an argument, ->arg0, and a
    /// function may exchange blocks, realloc=grow(old=arg0,size=arg1)->ret. Some of these need Linux 5.15.
    #[arg(long = "hook", value_name = "FUNCTIONS", value_parser = hooks::hooks, help_heading = TARGET)]
    pub(super) hooks: Vec<Hooks>,

    /// Follow these events, as in heap,reclaim [default: heap]
    ///
    /// Each has a report of its own, since what they are about overlaps. Where there are several, the files have their names
    /// in them: memtrace.heap.svg.
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', value_parser = event_classes(), help_heading = TARGET)]
    pub(super) events: Vec<EventClass>,

    /// Stop after this long, as in 30s, 5m or 1h30m
    ///
    /// The units are ms, s, m, h and d. Without it, memtrace traces until Ctrl-C, SIGTERM or the target's end.
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, help_heading = TARGET)]
    pub(super) duration: Option<Duration>,

    /// End with the command's exit code
    ///
    /// Where a signal ended the command, that is 128 and the signal's number. Only with a command. Where memtrace itself fails, its own exit code wins.
    #[arg(long, help_heading = TARGET)]
    pub(super) exit_code: bool,

    /// Write to this file; '-' is standard output [default: memtrace.svg]
    ///
    /// May be given more than once. The extension tells the format: .svg, .folded, .json or .txt. Files are opened before tracing begins.
    #[arg(short, long = "output", value_name = "FILE", help_heading = OUTPUT)]
    pub(super) outputs: Vec<PathBuf>,

    /// Write this format where no extension tells
    ///
    /// It is needed for '-', and for files whose extension is none of the formats'. It never overrules an extension that is.
    /// Without --output, it is the extension of the default file.
    #[arg(long, value_parser = formats(), help_heading = OUTPUT)]
    pub(super) format: Option<Format>,

    /// Draw this, and rank stacks by it [default: live-bytes]
    ///
    /// Of page faults of a command it is alloc-bytes, since nothing is resident any more when it has ended. Of reclaim it is stall-time.
    #[arg(short, long, value_parser = metrics(), help_heading = OUTPUT)]
    pub(super) metric: Option<Metric>,

    /// Put stacks together under this
    ///
    /// It is the root of the flame graph and of the folded stacks; the summary has a table of it. Whatever it is, the JSON has
    /// the processes too. Threads and allocators are told apart only where they are asked for here.
    #[arg(long, value_name = "ROOT", value_parser = roots(), default_value = GroupBy::default().name(), help_heading = OUTPUT)]
    pub(super) by: GroupBy,

    /// List so many sites, and so many processes, in the summary
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = OUTPUT)]
    pub(super) top: usize,

    /// Leave out allocations smaller than this, as in 4096, 64KiB or 1M
    ///
    /// Units are powers of 1024. What is left out is filtered in the kernel, and the report says how much it was.
    #[arg(long, value_name = "SIZE", value_parser = units::size, help_heading = FILTERS)]
    pub(super) min_size: Option<Bytes>,

    /// Leave out allocations larger than this
    #[arg(long, value_name = "SIZE", value_parser = units::size, help_heading = FILTERS)]
    pub(super) max_size: Option<Bytes>,

    /// Tell of one page in so many, chosen at random
    ///
    /// For page faults, so that they can be followed always. What a stack has is then estimated, and shown with its error
    /// (±); folded stacks have no room for it. What the kernel counts of each process, its resident bytes and its page faults,
    /// stays exact.
    #[arg(long, value_name = "N", help_heading = FILTERS)]
    pub(super) sample: Option<NonZeroU32>,

    /// Show as live only blocks that have lived at least this long
    ///
    /// Only with the metrics live-bytes and live-count, and no longer than --duration.
    #[arg(long, value_name = "DURATION", value_parser = units::duration, help_heading = FILTERS)]
    pub(super) older: Option<Duration>,

    /// Take no more of the target's processor time than this, as in 10%
    ///
    /// What tracing will cost is foretold from how often the target allocates at the beginning. Where it is more, only
    /// larger allocations are traced, and where that does not help, nothing is. Only with --pid.
    #[arg(long, value_name = "PERCENT", value_parser = units::percent, conflicts_with = "command", help_heading = TUNING)]
    pub(super) max_overhead: Option<Percent>,

    /// Take so many frames of a stack at most; 0 takes none
    #[arg(
        long,
        value_name = "N",
        value_parser = value_parser!(u32).range(..=MAX_FRAMES as i64),
        default_value_t = DEFAULT_FRAMES,
        help_heading = TUNING
    )]
    pub(super) max_depth: u32,

    /// Share the work among so many rings and threads [default: by processors]
    ///
    /// 1 to 16. The report is the same for any number. The metric peak-bytes takes just one.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_RINGS)), help_heading = TUNING)]
    pub(super) shards: Option<u32>,

    /// Make each ring of records this large
    ///
    /// A power of two from 4KiB to 2GiB. Records wait there for memtrace to read them, and a larger ring outlasts longer bursts. Raise it where the report says that records were lost to a full ring.
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "16MiB", help_heading = TUNING)]
    pub(super) ring_size: Bytes,

    /// Probe this instruction of each function
    ///
    /// By default the first that the kernel emulates, where it is certain to see every call as the entry does. At the entry, a probe may cost many times as much; it is for comparing.
    #[arg(long, value_name = "WHICH", value_parser = probe_sites(), default_value = "best", help_heading = TUNING)]
    pub(super) probe_site: ProbeSite,

    /// Keep books of so many live blocks at most
    ///
    /// For example 500k or 32M; units are powers of 1000. A block takes at most 80 bytes of memory. Beyond the limit, allocations are counted as lost.
    #[arg(long, value_name = "BLOCKS", value_parser = units::count, default_value = "32M", help_heading = TUNING)]
    pub(super) max_live: u64,

    /// Show neither progress nor summary
    ///
    /// The line that begins with 'attached', and errors, are still shown.
    #[arg(short, long, conflicts_with = "verbose", help_heading = GENERAL)]
    pub(super) quiet: bool,

    /// Log more; -vv for debugging
    #[arg(short, long, action = ArgAction::Count, help_heading = GENERAL)]
    pub(super) verbose: u8,

    /// Print help; -h is short, --help is long
    #[arg(short, long, action = ArgAction::Help, help_heading = GENERAL)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = GENERAL)]
    version: Option<bool>,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    one_of(Format::ALL, |format| {
        let says = match format {
            Format::Svg => "an interactive flame graph",
            Format::Folded => "folded stacks, a line each",
            Format::Json => "everything, for programs",
            Format::Text => "a summary for people",
        };
        PossibleValue::new(format.name()).help(says)
    })
}

fn metrics() -> impl TypedValueParser<Value = Metric> {
    one_of(Metric::ALL, |metric| {
        let says = match metric {
            Metric::LiveBytes => "bytes allocated and not yet freed; of page faults, resident bytes",
            Metric::LiveCount => "blocks allocated and not yet freed, or resident pages",
            Metric::AllocBytes => "bytes allocated, freed or not; of page faults, all that were touched",
            Metric::AllocCount => "blocks allocated, freed or not, or all pages that were touched",
            Metric::PeakBytes => "bytes live when the process' live bytes were highest",
            Metric::StallTime => "nanoseconds waited for memory, of reclaim",
            Metric::StallCount => "how often memory was waited for, of reclaim",
        };
        PossibleValue::new(metric.name()).help(says)
    })
}

fn event_classes() -> impl TypedValueParser<Value = EventClass> {
    one_of(EventClass::ALL, |class| {
        let facts = class.facts();
        PossibleValue::new(facts.name).help(facts.help)
    })
}

fn roots() -> impl TypedValueParser<Value = GroupBy> {
    one_of(GroupBy::ALL, |root| {
        let says = match root {
            GroupBy::Process => "the process that allocated",
            GroupBy::Cgroup => "its control group, and so its service or container",
            GroupBy::User => "the user that it runs as",
            GroupBy::Comm => "its short name",
            GroupBy::Allocator => "the allocator that handed the block out",
            GroupBy::Thread => "the thread that allocated",
            GroupBy::Memory => "the kind of memory: heap, anonymous, file, stack, shmem; of page faults",
        };
        PossibleValue::new(root.name()).help(says)
    })
}

fn probe_sites() -> impl TypedValueParser<Value = ProbeSite> {
    one_of(&[ProbeSite::Best, ProbeSite::Entry], |site| match site {
        ProbeSite::Best => PossibleValue::new("best").help("the cheapest that is proven to be as good as the entry"),
        ProbeSite::Entry => PossibleValue::new("entry").help("the first"),
    })
}

/// Reads one of `all` by the name under which `show` shows it.
fn one_of<T: Copy + Send + Sync>(all: &'static [T], show: fn(&T) -> PossibleValue) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(show)).try_map(move |name| {
        all.iter().copied().find(|value| show(value).get_name() == name).ok_or("this is not one of the possible values")
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_format_every_metric_and_every_root_can_be_asked_for() {
        for root in GroupBy::ALL {
            let args = Arguments::try_parse_from(["memtrace", "--by", root.name()]).expect("a root");
            assert_eq!(args.trace.by, *root);
        }
        for format in Format::ALL {
            let args = Arguments::try_parse_from(["memtrace", "--format", format.name()]).expect("a format");
            assert_eq!(args.trace.format, Some(*format));
        }
        for metric in Metric::ALL {
            let args = Arguments::try_parse_from(["memtrace", "--metric", metric.name()]).expect("a metric");
            assert_eq!(args.trace.metric, Some(*metric));
        }
    }
}
