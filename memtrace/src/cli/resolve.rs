//! Configuration of a run from its arguments. Checks their combination.

use std::num::NonZeroU32;

use memtrace_history::tags::TagRules;
use memtrace_model::format;
use memtrace_model::{Bytes, EventClass, Metric, Requirement};
use memtrace_report::Format;

use super::args::TraceArgs;
use super::conflict::ArgConflict;
use super::filters::Excluded;
use super::{activity, events, heap_profiles, outputs, program_tags, recording, tags, target};
use crate::run_kit::grouping::Grouping;
use crate::trace::config::{ActivityConfig, Config};
use memtrace_host::debuginfod::Servers;
use memtrace_host::kernel::ThreadFilter;
use memtrace_object::allocators::UserHooks;

/// The largest ring: the size of a BPF map has 32 bits (`max_entries` of `union bpf_attr`, include/uapi/linux/bpf.h).
const LARGEST_RING: Bytes = Bytes(1 << 31);
/// Entries of lists in the summary.
const DEFAULT_TOP: usize = 10;
/// The smallest ring: one page.
const SMALLEST_RING: Bytes = Bytes(4096);

/// Returns the configuration of a run.
pub(super) fn config(mut args: TraceArgs) -> Result<Config, ArgConflict> {
    sizes(&args)?;
    ages(&args)?;
    if let Some(conflict) = args.metric.and_then(metric_of_recordings) {
        return Err(conflict);
    }
    let shards = shards(&args)?;
    ring_size(args.ring_size)?;
    if args.max_live == 0 {
        return Err(ArgConflict::new("--max-live 0 allows no block", "give at least 1, as in 32M"));
    }
    let target = target::resolve(&args.target, args.exit_code)?;
    let has_outputs = !args.outputs.is_empty();
    let recording = recording::resolve(&mut args)?;
    // A recording alone needs no report.
    let needs_report = !has_outputs || !args.outputs.is_empty();
    args.metric = metric(&args)?;
    let timeline = recording::timeline(&args, recording.as_ref());
    let every = recording::every(&args, recording.as_ref().map(|recording| recording.interval).or(timeline))?;
    let events = events::resolve(&args)?;
    let grouping = grouping(&args)?;
    let (tag_functions, tag_probes) = program_tags::take(&mut args)?;
    let activity = activity::take(&mut args)?.or_else(|| stalls_as_slices(&args, &events));
    let threads = thread_filter(&mut args);
    let outputs =
        if needs_report { outputs::resolve(std::mem::take(&mut args.outputs), args.format)? } else { Vec::new() };
    heap_profiles::check(&args.heap_profiles, &outputs)?;
    Ok(Config {
        metric: args.metric,
        page_sample: events::page_sample(&args),
        events,
        outputs,
        heap_profiles: args.heap_profiles,
        recording,
        every,
        timeline,
        activity,
        accounts: None,
        target,
        duration: args.duration,
        grouping,
        min_size: args.min_size,
        max_size: args.max_size,
        older: args.older,
        cold_after: args.cold_after,
        lifetimes: args.lifetimes,
        top: args.top.unwrap_or(DEFAULT_TOP),
        keep_ended: args.keep_ended,
        all_stacks: args.all_stacks,
        max_depth: args.max_depth,
        shards,
        ring_size: args.ring_size,
        probe_site: args.probe_site,
        threads,
        tag_functions,
        tag_probes,
        user_hooks: UserHooks {
            allocators: args.allocators,
            hooks: args.hooks.into_iter().map(|hooks| hooks.hooks).collect(),
        },
        sizes: args.size.unwrap_or_default(),
        max_live: args.max_live,
        debuginfod: debuginfod(args.debuginfod.as_deref()),
        memory_limit: args.memory_limit,
        max_overhead: args.max_overhead,
        protect: args.protect,
        quiet: args.quiet,
    })
}

/// Returns the activity of a run that traces stalls, if an output shows them over time.
fn stalls_as_slices(args: &TraceArgs, events: &[EventClass]) -> Option<ActivityConfig> {
    let is_shown =
        events.iter().any(|class| class.counts_stalls()) && recording::has_output(args, Format::shows_slices);
    is_shown.then(ActivityConfig::default)
}

/// Returns the metric to draw: that of touches if they are measured.
fn metric(args: &TraceArgs) -> Result<Option<Metric>, ArgConflict> {
    match (args.metric, args.cold_after) {
        (Some(metric), None) if metric.needs(Requirement::Touches) => Err(ArgConflict::new(
            format!("--metric {} needs --cold-after", metric.name()),
            "give the time after which memory is cold, as in --cold-after 10s",
        )),
        (_, Some(time)) if time.is_zero() => {
            Err(ArgConflict::new("--cold-after 0s measures no touches", "give a longer time, as in 10s"))
        }
        (_, Some(_)) if args.older.is_some() => {
            Err(ArgConflict::new("--cold-after counts blocks of any age", "remove --older, or --cold-after"))
        }
        (None, Some(_)) => Ok(Some(Metric::ColdBytes)),
        (metric, _) => Ok(metric),
    }
}

fn grouping(args: &TraceArgs) -> Result<Grouping, ArgConflict> {
    if args.by.len() > 1 {
        return Err(ArgConflict::new(
            "--by has more than one key",
            "give one; `memtrace accounts` groups by two, as in --by process,thread",
        ));
    }
    let program_tags = program_tags::are_given(args);
    let (by, tags) = tags::resolve_run(args.tags.as_deref(), args.by.first().copied(), program_tags)?;
    if !program_tags && tags.as_ref().is_some_and(TagRules::only_name_numbers) {
        return Err(program_tags::missing());
    }
    if program_tags {
        program_tags::check(args, by.is_tag(), by.name(), tags.as_ref())?;
    }
    Ok(Grouping { by, tags, program_tags })
}

/// Returns the error for a metric that only reports of recordings have.
fn metric_of_recordings(metric: Metric) -> Option<ArgConflict> {
    let (needs, steps) = match metric.requirement() {
        Requirement::Moments => ("two moments", "and write: `memtrace report --from +10s --to -5s run.memtrace`"),
        Requirement::Marks => (
            "two marks",
            "set marks with `memtrace mark`, and write: `memtrace report --between MARK MARK run.memtrace`",
        ),
        _ => return None,
    };
    let message = format!("--metric {} needs {needs} of a recording", metric.name());
    Some(ArgConflict::new(message, format!("record the trace, {steps}")))
}

fn debuginfod(urls: Option<&str>) -> Servers {
    match urls.map(str::trim) {
        None => Servers::Environment,
        Some("") => Servers::Known,
        Some("off") => Servers::None,
        Some(urls) => Servers::Urls(urls.to_owned()),
    }
}

/// Returns the threads whose allocations are traced.
fn thread_filter(args: &mut TraceArgs) -> ThreadFilter {
    let excluded = args.target.exclude.iter().filter_map(|excluded| match excluded {
        Excluded::Threads(name) => Some(name.clone()),
        Excluded::Processes(_) => None,
    });
    ThreadFilter { excluded: excluded.collect(), included: std::mem::take(&mut args.threads) }
}

fn sizes(args: &TraceArgs) -> Result<(), ArgConflict> {
    match (args.min_size, args.max_size) {
        (Some(min), Some(max)) if min > max => Err(ArgConflict::new(
            format!(
                "--min-size {} is more than --max-size {}, which matches no allocation",
                format::size_argument(min.0),
                format::size_argument(max.0)
            ),
            "swap them, or remove one",
        )),
        _ => Ok(()),
    }
}

fn ages(args: &TraceArgs) -> Result<(), ArgConflict> {
    if args.duration.is_some_and(|duration| duration.is_zero()) {
        return Err(ArgConflict::new("--duration 0s traces nothing", "give a longer one, as in 30s"));
    }
    let Some(older) = args.older else { return Ok(()) };
    let shown = format::duration_argument(older);
    let applies = |metric: &Metric| metric.quantity().is_held() && metric.needs(Requirement::Events);
    match args.duration {
        _ if let Some(metric) = args.metric.filter(|metric| !applies(metric)) => Err(ArgConflict::new(
            format!("--older {shown} applies to live blocks, and --metric {} counts others too", metric.name()),
            "remove --older, or use --metric live-bytes, live-count, exit-bytes or exit-count",
        )),
        Some(duration) if older > duration => Err(ArgConflict::new(
            format!(
                "--older {shown} is longer than --duration {}, but no block is older than the trace",
                format::duration_argument(duration)
            ),
            "increase --duration, or reduce --older",
        )),
        _ => Ok(()),
    }
}

/// The high-water mark of a process is not the sum of those of its shards, so a single shard has to count all events.
fn shards(args: &TraceArgs) -> Result<Option<NonZeroU32>, ArgConflict> {
    let shards = args.shards.and_then(NonZeroU32::new);
    let needs_peaks = args.metric.is_some_and(|metric| metric.needs(Requirement::Peaks));
    match shards {
        Some(shards) if needs_peaks && shards > NonZeroU32::MIN => Err(ArgConflict::new(
            format!("--metric peak-bytes needs a single shard, but --shards is {shards}"),
            "remove --shards, or give --shards 1",
        )),
        None if needs_peaks => Ok(Some(NonZeroU32::MIN)),
        _ => Ok(shards),
    }
}

fn ring_size(size: Bytes) -> Result<(), ArgConflict> {
    let shown = format::size_argument(size.0);
    if !(SMALLEST_RING..=LARGEST_RING).contains(&size) {
        return Err(ArgConflict::new(
            format!("--ring-size {shown} is not between 4KiB and 2GiB"),
            "give a power of two in this range, as in 16MiB",
        ));
    }
    if !size.0.is_power_of_two() {
        let above = size.0.next_power_of_two();
        return Err(ArgConflict::new(
            format!("--ring-size {shown} is not a power of two"),
            format!("give {} or {}", format::size_argument(above / 2), format::size_argument(above)),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use memtrace_model::{EventClass, FilterRule, GroupBy, Pid, ProcessAttribute};
    use memtrace_report::Format;

    use super::super::args::Arguments;
    use super::*;
    use crate::run_kit::config::{Destination, Output};
    use crate::targets::select::{ProbeSite, Target};
    use crate::trace::config::BlockSizes;

    fn resolved(line: &str) -> Result<Config, String> {
        let words = std::iter::once("memtrace").chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).expect("each argument is valid");
        config(arguments.trace).map_err(|conflict| conflict.message)
    }

    fn refused(line: &str) -> String {
        resolved(line).expect_err(line)
    }

    #[test]
    fn defaults_are_these() {
        let expected = Config {
            user_hooks: UserHooks::default(),
            threads: ThreadFilter::default(),
            tag_functions: Vec::new(),
            tag_probes: Vec::new(),
            sizes: BlockSizes::Requested,
            target: Target::Pids { pids: vec![Pid(4711)], children: false },
            duration: None,
            outputs: vec![Output { destination: Destination::File("memtrace.svg".into()), format: Format::Svg }],
            recording: None,
            every: None,
            timeline: None,
            heap_profiles: Vec::new(),
            activity: None,
            accounts: None,
            events: vec![EventClass::default()],
            page_sample: NonZeroU32::MIN,
            metric: None,
            grouping: Grouping::default(),
            min_size: None,
            max_size: None,
            older: None,
            cold_after: None,
            lifetimes: false,
            top: 10,
            keep_ended: 1000,
            all_stacks: false,
            max_depth: 128,
            shards: None,
            ring_size: Bytes(16 << 20),
            probe_site: ProbeSite::Best,
            max_live: 32_000_000,
            debuginfod: Servers::Environment,
            memory_limit: None,
            max_overhead: None,
            protect: false,
            quiet: false,
        };
        assert_eq!(resolved("--pid 4711"), Ok(expected));
    }

    #[test]
    fn every_argument_reaches_the_configuration() {
        let expected = Config {
            user_hooks: UserHooks::default(),
            threads: ThreadFilter::default(),
            tag_functions: Vec::new(),
            tag_probes: Vec::new(),
            sizes: BlockSizes::Requested,
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
            recording: None,
            every: None,
            timeline: None,
            heap_profiles: Vec::new(),
            activity: None,
            accounts: None,
            events: vec![EventClass::Heap, EventClass::Fault],
            page_sample: NonZeroU32::new(64).expect("64 is not zero"),
            metric: Some(Metric::LiveCount),
            grouping: Grouping { by: GroupBy::Thread, ..Grouping::default() },
            min_size: Some(Bytes(1024)),
            max_size: Some(Bytes(1 << 20)),
            older: Some(Duration::from_secs(60)),
            cold_after: None,
            lifetimes: true,
            top: 3,
            keep_ended: 0,
            all_stacks: true,
            max_depth: 0,
            shards: NonZeroU32::new(16),
            ring_size: Bytes(4096),
            probe_site: ProbeSite::Entry,
            max_live: 500_000,
            debuginfod: Servers::Urls("http://a".into()),
            memory_limit: Some(Bytes(64 << 20)),
            max_overhead: None,
            protect: true,
            quiet: true,
        };
        let line = "--events heap,fault --sample 64 -d 1m30s -o a.json -o - --format txt -m live-count --by thread --min-size 1k --max-size 1M --older 1m --top 3 --keep-ended 0 --all-stacks --lifetimes \
                    --max-depth 0 --shards 16 --ring-size 4096 --probe-site entry --max-live \
                    500k --memory-limit 64MiB --protect --debuginfod=http://a -q --exit-code -- ls -l --pid";
        assert_eq!(resolved(line), Ok(expected));
    }

    #[test]
    fn target_is_of_one_kind_or_all_processes() {
        let target = |line: &str| resolved(line).map(|config| config.target);
        assert_eq!(target("-a"), Ok(Target::Selected(vec![])));
        let rule = |attribute, exclude| FilterRule { attribute, exclude };
        let rules = vec![
            rule(ProcessAttribute::Comm(String::from("nginx")), false),
            rule(ProcessAttribute::User(String::from("www-data")), false),
            rule(ProcessAttribute::Pid(Pid(9)), true),
        ];
        for line in ["--user www-data --exclude pid=9 --comm nginx", "-a --user www-data --exclude pid=9 --comm nginx"]
        {
            assert_eq!(target(line), Ok(Target::Selected(rules.clone())), "{line}");
        }
        let all_others = vec![rule(ProcessAttribute::Pid(Pid(9)), true)];
        assert_eq!(target("--all --exclude pid=9"), Ok(Target::Selected(all_others)));
        assert!(refused("--exit-code").starts_with("--exit-code needs a command"));
        assert!(refused("--pid 1 --comm bash").starts_with("--pid or a command is given together"));
        assert!(refused("--exclude pid=1 -- ls").starts_with("--pid or a command is given together"));
        assert!(refused("--children").starts_with("--children and --no-children need"));
        assert_eq!(refused("--pid 1 -- ls"), "both --pid and a command are given");
        assert!(refused("--pid 1 --exit-code").starts_with("--exit-code needs a command"));
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

    #[test]
    fn cold_memory_is_measured_on_request() {
        let metric = |line: &str| resolved(line).map(|config| config.metric);
        assert_eq!(metric("-p 1 --cold-after 10s"), Ok(Some(Metric::ColdBytes)));
        assert_eq!(metric("-p 1 --events map --cold-after 10s -m hot-bytes"), Ok(Some(Metric::HotBytes)));
        assert_eq!(refused("-p 1 -m cold-bytes"), "--metric cold-bytes needs --cold-after");
        assert_eq!(refused("-p 1 --cold-after 0s"), "--cold-after 0s measures no touches");
        assert_eq!(refused("-p 1 --cold-after 1s --older 1s"), "--cold-after counts blocks of any age");
        let other_events = refused("-p 1 --events fault --cold-after 1s");
        assert!(other_events.starts_with("--cold-after needs heap or map events"), "{other_events}");
    }

    #[test]
    fn conflicting_sizes_and_ages_are_refused() {
        assert_eq!(
            refused("-p 1 --min-size 2k --max-size 1000"),
            "--min-size 2KiB is more than --max-size 1000, which matches no allocation"
        );
        assert!(resolved("-p 1 --min-size 1k --max-size 1024").is_ok());
        assert!(refused("-p 1 --older 1m -d 59s").starts_with("--older 1m is longer than --duration 59s"));
        assert!(resolved("-p 1 --older 1m -d 1m").is_ok());
        assert!(resolved("-p 1 --older 1m").is_ok());
        assert_eq!(refused("-p 1 -d 0s"), "--duration 0s traces nothing");
        for metric in ["alloc-bytes", "alloc-count", "peak-bytes"] {
            let message = refused(&format!("-p 1 --older 5s -m {metric}"));
            assert!(message.starts_with("--older 5s applies to live blocks"), "{message}");
            assert!(message.contains(metric), "{message}");
        }
    }

    #[test]
    fn peak_needs_exactly_one_shard() {
        let shards = |line: &str| resolved(line).map(|config| config.shards.map(NonZeroU32::get));
        assert_eq!(shards("-p 1 -m peak-bytes"), Ok(Some(1)));
        assert_eq!(shards("-p 1 -m peak-bytes --shards 1"), Ok(Some(1)));
        assert_eq!(shards("-p 1 --shards 2"), Ok(Some(2)));
        assert!(refused("-p 1 -m peak-bytes --shards 2").starts_with("--metric peak-bytes needs a single shard"));
    }

    #[test]
    fn ring_is_a_power_of_two_within_bounds() {
        for size in ["4096", "64KiB", "2GiB"] {
            assert!(resolved(&format!("-p 1 --ring-size {size}")).is_ok(), "{size}");
        }
        for size in ["0", "2048", "4GiB", "16777216T"] {
            let words = ["memtrace", "-p", "1", "--ring-size", size];
            let outcome = Arguments::try_parse_from(words).map(|arguments| config(arguments.trace));
            assert!(!matches!(outcome, Ok(Ok(_))), "{size}");
        }
        let arguments = Arguments::try_parse_from(["memtrace", "-p", "1", "--ring-size", "5000"]).expect("a size");
        let conflict = config(arguments.trace).expect_err("5000 is not a power of two");
        assert_eq!(conflict.message, "--ring-size 5000 is not a power of two");
        assert_eq!(conflict.remedy, "give 4KiB or 8KiB");
    }

    #[test]
    fn at_least_one_live_block_is_kept() {
        assert_eq!(refused("-p 1 --max-live 0"), "--max-live 0 allows no block");
    }
}
