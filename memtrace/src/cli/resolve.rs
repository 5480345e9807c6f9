//! Arguments held against each other: from what was given to what is to be done.

use std::num::NonZeroU32;

use super::args::Trace;
use super::{choices, events, outputs};
use crate::model::format;
use crate::model::{Bytes, Metric};
use crate::session::{Config, Target, UserHooks};

/// The largest ring: the size of a map is 32 bits wide (`max_entries` of `union bpf_attr`, include/uapi/linux/bpf.h).
const LARGEST_RING: Bytes = Bytes(1 << 31);
/// The smallest ring: one page.
const SMALLEST_RING: Bytes = Bytes(4096);

/// Arguments that are each right and cannot be together, or that are not enough.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    /// What is wrong.
    pub(super) message: String,
    /// What to do about it.
    pub(super) remedy: String,
}

impl Contradiction {
    pub(super) fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }
}

/// Turns arguments into a run's configuration.
pub(super) fn config(given: Trace) -> Result<Config, Contradiction> {
    sizes(&given)?;
    ages(&given)?;
    let shards = shards(&given)?;
    ring_size(given.ring_size)?;
    if given.max_live == 0 {
        return Err(Contradiction::new("--max-live 0 leaves no room for any block", "give at least 1, as in 32M"));
    }
    let target = target(&given)?;
    let events = events::resolve(&given)?;
    Ok(Config {
        metric: events::metric(&given, &events),
        page_sample: events::page_sample(&given),
        events,
        outputs: outputs::resolve(given.outputs, given.format)?,
        target,
        duration: given.duration,
        by: given.by,
        min_size: given.min_size,
        max_size: given.max_size,
        older: given.older,
        top: given.top,
        max_depth: given.max_depth,
        shards,
        ring_size: given.ring_size,
        probe_site: given.probe_site,
        user_hooks: UserHooks { allocators: given.allocators, hooks: given.hooks },
        max_live: given.max_live,
        max_overhead: given.max_overhead,
        quiet: given.quiet,
    })
}

fn target(given: &Trace) -> Result<Target, Contradiction> {
    let choices = choices::given(given);
    let selects = !choices.is_empty();
    if given.exit_code && given.command.is_empty() {
        return Err(Contradiction::new(
            "--exit-code passes on a command's exit code, and no command is given",
            "leave it out, or give a command: `memtrace --exit-code -- CMD ARGS`",
        ));
    }
    match (given.pids.is_empty(), given.command.is_empty()) {
        (false, false) => Err(Contradiction::new(
            "both --pid and a command are given",
            "trace either running processes or a command; two memtraces may run at once",
        )),
        (false, true) | (true, false) if selects => Err(Contradiction::new(
            "processes are named, and chosen by what they are as well",
            "give either --pid or a command, or --comm, --exe, --cgroup, --user and --exclude",
        )),
        (true, true) if given.children || given.no_children => Err(Contradiction::new(
            "--children and --no-children are about the processes that --pid's or a command's start",
            "leave it out: whoever fits is traced, whoever started it",
        )),
        (true, true) => Ok(Target::Selected(choices)),
        (false, true) => {
            let mut pids = Vec::with_capacity(given.pids.len());
            for &pid in &given.pids {
                if !pids.contains(&pid) {
                    pids.push(pid);
                }
            }
            Ok(Target::Pids { pids, children: given.children })
        }
        (true, false) => Ok(Target::Command {
            argv: given.command.clone(),
            pass_exit_code: given.exit_code,
            children: !given.no_children,
        }),
    }
}

fn sizes(given: &Trace) -> Result<(), Contradiction> {
    match (given.min_size, given.max_size) {
        (Some(min), Some(max)) if min > max => Err(Contradiction::new(
            format!(
                "--min-size {} is more than --max-size {}, which leaves nothing to trace",
                format::size_argument(min.0),
                format::size_argument(max.0)
            ),
            "swap them, or leave one out",
        )),
        _ => Ok(()),
    }
}

fn ages(given: &Trace) -> Result<(), Contradiction> {
    if given.duration.is_some_and(|duration| duration.is_zero()) {
        return Err(Contradiction::new("--duration 0s leaves no time to trace", "give a longer one, as in 30s"));
    }
    let Some(older) = given.older else { return Ok(()) };
    let shown = format::duration_argument(older);
    let metric = given.metric.unwrap_or_default();
    match given.duration {
        _ if !matches!(metric, Metric::LiveBytes | Metric::LiveCount) => Err(Contradiction::new(
            format!("--older {shown} asks for what is live, and --metric {} for what is not only", metric.name()),
            "leave out --older, or use --metric live-bytes or live-count",
        )),
        Some(duration) if older > duration => Err(Contradiction::new(
            format!(
                "--older {shown} is longer than --duration {}, and no block can be older than the trace",
                format::duration_argument(duration)
            ),
            "give a longer --duration, or a shorter --older",
        )),
        _ => Ok(()),
    }
}

/// The peak of parts is not the sum of their peaks, so that a single shard must see all of them.
fn shards(given: &Trace) -> Result<Option<NonZeroU32>, Contradiction> {
    let shards = given.shards.and_then(NonZeroU32::new);
    match shards {
        Some(shards) if given.metric == Some(Metric::PeakBytes) && shards > NonZeroU32::MIN => Err(Contradiction::new(
            format!("--metric peak-bytes takes a single shard, and --shards {shards} asks for more"),
            "leave out --shards, or give --shards 1",
        )),
        None if given.metric == Some(Metric::PeakBytes) => Ok(Some(NonZeroU32::MIN)),
        _ => Ok(shards),
    }
}

fn ring_size(size: Bytes) -> Result<(), Contradiction> {
    let shown = format::size_argument(size.0);
    if !(SMALLEST_RING..=LARGEST_RING).contains(&size) {
        return Err(Contradiction::new(
            format!("--ring-size {shown} is not between 4KiB and 2GiB"),
            "give a power of two in between, as in 16MiB",
        ));
    }
    if !size.0.is_power_of_two() {
        let above = size.0.next_power_of_two();
        return Err(Contradiction::new(
            format!("--ring-size {shown} is not a power of two, as the kernel asks of a ring"),
            format!("give {} or {}", format::size_argument(above / 2), format::size_argument(above)),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::super::args::Arguments;
    use super::*;
    use crate::model::{EventClass, FilterRule, GroupBy, Pid, ProcessAttribute};
    use crate::report::Format;
    use crate::session::{Destination, Output, ProbeSite};

    fn resolved(line: &str) -> Result<Config, String> {
        let words = std::iter::once("memtrace").chain(line.split_whitespace());
        let given = Arguments::try_parse_from(words).expect("each argument is right by itself");
        config(given.trace).map_err(|contradiction| contradiction.message)
    }

    fn refused(line: &str) -> String {
        resolved(line).expect_err(line)
    }

    #[test]
    fn the_defaults_are_these() {
        let expected = Config {
            user_hooks: UserHooks::default(),
            target: Target::Pids { pids: vec![Pid(4711)], children: false },
            duration: None,
            outputs: vec![Output { destination: Destination::File("memtrace.svg".into()), format: Format::Svg }],
            events: vec![EventClass::default()],
            page_sample: NonZeroU32::MIN,
            metric: Metric::LiveBytes,
            by: GroupBy::Process,
            min_size: None,
            max_size: None,
            older: None,
            top: 10,
            max_depth: 128,
            shards: None,
            ring_size: Bytes(16 << 20),
            probe_site: ProbeSite::Best,
            max_live: 32_000_000,
            max_overhead: None,
            quiet: false,
        };
        assert_eq!(resolved("--pid 4711"), Ok(expected));
    }

    #[test]
    fn everything_given_arrives() {
        let expected = Config {
            user_hooks: UserHooks::default(),
            target: Target::Command {
                argv: vec!["ls".into(), "-l".into(), "--pid".into()],
                pass_exit_code: true,
                children: true,
            },
            duration: Some(Duration::from_secs(90)),
            outputs: vec![
                Output { destination: Destination::File("a.json".into()), format: Format::Json },
                Output { destination: Destination::Stdout, format: Format::Text },
            ],
            events: vec![EventClass::Heap, EventClass::Fault],
            page_sample: NonZeroU32::new(64).expect("64 is not zero"),
            metric: Metric::LiveCount,
            by: GroupBy::Thread,
            min_size: Some(Bytes(1024)),
            max_size: Some(Bytes(1 << 20)),
            older: Some(Duration::from_secs(60)),
            top: 3,
            max_depth: 0,
            shards: NonZeroU32::new(16),
            ring_size: Bytes(4096),
            probe_site: ProbeSite::Entry,
            max_live: 500_000,
            max_overhead: None,
            quiet: true,
        };
        let line = "--events heap,fault --sample 64 -d 1m30s -o a.json -o - --format txt -m live-count --by thread --min-size 1k --max-size 1M --older 1m --top 3 \
                    --max-depth 0 --shards 16 --ring-size 4096 --probe-site entry --max-live \
                    500k -q --exit-code -- ls -l --pid";
        assert_eq!(resolved(line), Ok(expected));
    }

    #[test]
    fn one_kind_of_target_is_given_or_all_are_traced() {
        let target = |line: &str| resolved(line).map(|config| config.target);
        assert_eq!(target(""), Ok(Target::Selected(vec![])));
        let choice = |attribute, exclude| FilterRule { attribute, exclude };
        let chosen = vec![
            choice(ProcessAttribute::Comm(String::from("nginx")), false),
            choice(ProcessAttribute::User(String::from("www-data")), false),
            choice(ProcessAttribute::Pid(Pid(9)), true),
        ];
        assert_eq!(target("--user www-data --exclude pid=9 --comm nginx"), Ok(Target::Selected(chosen)));
        assert!(refused("--exit-code").starts_with("--exit-code passes on a command's exit code"));
        assert!(refused("--pid 1 --comm bash").starts_with("processes are named, and chosen"));
        assert!(refused("--exclude pid=1 -- ls").starts_with("processes are named, and chosen"));
        assert!(refused("--children").starts_with("--children and --no-children are about"));
        assert_eq!(refused("--pid 1 -- ls"), "both --pid and a command are given");
        assert!(refused("--pid 1 --exit-code").starts_with("--exit-code passes on a command's exit code"));
    }

    #[test]
    fn a_pid_given_twice_is_traced_once() {
        let target = resolved("-p 7 -p 9 --pid 7").map(|config| config.target);
        assert_eq!(target, Ok(Target::Pids { pids: vec![Pid(7), Pid(9)], children: false }));
    }

    #[test]
    fn a_command_s_children_are_traced_and_others_only_where_asked() {
        let children = |line: &str| match resolved(line).map(|config| config.target) {
            Ok(Target::Pids { children, .. } | Target::Command { children, .. }) => children,
            other => panic!("{other:?}"),
        };
        assert!(children("-- ls") && children("--pid 1 --children") && children("--no-children --children -- ls"));
        assert!(!children("--no-children -- ls") && !children("--pid 1"));
    }

    #[test]
    fn contradictory_sizes_and_ages_are_refused() {
        assert_eq!(
            refused("-p 1 --min-size 2k --max-size 1000"),
            "--min-size 2KiB is more than --max-size 1000, which leaves nothing to trace"
        );
        assert!(resolved("-p 1 --min-size 1k --max-size 1024").is_ok());
        assert!(refused("-p 1 --older 1m -d 59s").starts_with("--older 1m is longer than --duration 59s"));
        assert!(resolved("-p 1 --older 1m -d 1m").is_ok());
        assert!(resolved("-p 1 --older 1m").is_ok());
        assert_eq!(refused("-p 1 -d 0s"), "--duration 0s leaves no time to trace");
        for metric in ["alloc-bytes", "alloc-count", "peak-bytes"] {
            let message = refused(&format!("-p 1 --older 5s -m {metric}"));
            assert!(message.starts_with("--older 5s asks for what is live"), "{message}");
            assert!(message.contains(metric), "{message}");
        }
    }

    #[test]
    fn a_peak_takes_exactly_one_shard() {
        let shards = |line: &str| resolved(line).map(|config| config.shards.map(NonZeroU32::get));
        assert_eq!(shards("-p 1 -m peak-bytes"), Ok(Some(1)));
        assert_eq!(shards("-p 1 -m peak-bytes --shards 1"), Ok(Some(1)));
        assert_eq!(shards("-p 1 --shards 2"), Ok(Some(2)));
        assert!(refused("-p 1 -m peak-bytes --shards 2").starts_with("--metric peak-bytes takes a single shard"));
    }

    #[test]
    fn a_ring_is_a_power_of_two_within_bounds() {
        for size in ["4096", "64KiB", "2GiB"] {
            assert!(resolved(&format!("-p 1 --ring-size {size}")).is_ok(), "{size}");
        }
        for size in ["0", "2048", "4GiB", "16777216T"] {
            let words = ["memtrace", "-p", "1", "--ring-size", size];
            let outcome = Arguments::try_parse_from(words).map(|given| config(given.trace));
            assert!(!matches!(outcome, Ok(Ok(_))), "{size}");
        }
        let given = Arguments::try_parse_from(["memtrace", "-p", "1", "--ring-size", "5000"]).expect("a size");
        let contradiction = config(given.trace).expect_err("5000 is no power of two");
        assert_eq!(contradiction.message, "--ring-size 5000 is not a power of two, as the kernel asks of a ring");
        assert_eq!(contradiction.remedy, "give 4KiB or 8KiB");
    }

    #[test]
    fn books_have_room_for_a_block() {
        assert_eq!(refused("-p 1 --max-live 0"), "--max-live 0 leaves no room for any block");
    }
}
