//! Trace commands: builds the configuration from the options, rejects conflicting options, runs the trace, and returns
//! the exit code.

mod args;
mod events;

use std::num::NonZeroU32;
use std::process::ExitCode;

use memtrace_model::EventClass;
use memtrace_report::Format;

pub(crate) use self::args::{CommonArgs, FaultsArgs, MapsArgs, ReclaimArgs, RunArgs, TraceArgs};
use super::console::Console;
use super::terminal::Terminal;
use super::{exit, logging};
use crate::options::ActivityConfig;
use crate::options::conflict::ArgConflict;
use crate::options::{OutputArgs, check_heap_profiles, resolve_outputs};
use crate::targets::select::Target;
use crate::trace::config::Config;

/// In processes whose blocks are not sampled, one page in this number is sampled, unless the user gives another number.
const ONE_PAGE_IN: NonZeroU32 = NonZeroU32::new(64).expect("the number is not 0");

/// Runs a trace.
pub(super) fn run(args: TraceArgs, console: &Console) -> ExitCode {
    let verbose = args.run.general.verbose;
    run_config(config(args), verbose, console)
}

/// Runs a trace with this configuration, or prints the conflict between options.
pub(super) fn run_config(config: Result<Config, ArgConflict>, verbose: u8, console: &Console) -> ExitCode {
    let config = match config {
        Ok(config) => config,
        Err(conflict) => return exit::of_conflict(&conflict, console).into(),
    };
    logging::start(console, config.quiet, verbose);
    let pass = matches!(config.target, Target::Command { pass_exit_code: true, .. });
    let has_command = matches!(config.target, Target::Command { .. });
    let outcome = crate::trace::run(&config, &mut Terminal::new(console.clone(), config.quiet, has_command));
    console.clear();
    match outcome {
        Ok(outcome) => exit::of_outcome(&outcome, pass, console).into(),
        Err(error) => exit::of_error(&error, console).into(),
    }
}

/// Returns the configuration of a trace.
pub(super) fn config(args: TraceArgs) -> Result<Config, ArgConflict> {
    args.common.stacks.check()?;
    let events = events::resolve(&args)?;
    let pages_of_others = events::samples_pages_of_others(&args);
    let TraceArgs { common, mut hooks, heap, sampling, blocks, mut pages, touches, run, .. } = args;
    if pages_of_others {
        pages.sample.get_or_insert(ONE_PAGE_IN);
    }
    let CommonArgs { target, end, mut output, mut recording, stacks, grouping, spans } = common;
    let RunArgs { shards, tuning, general } = run;
    end.check()?;
    heap.check()?;
    sampling.check(heap.source)?;
    blocks.check(stacks.metric, end.duration)?;
    tuning.check()?;
    let metric = stacks.resolve_metric(&touches, &blocks)?;
    let shards = shards.resolve(metric)?;
    let selected = target.resolve(end.exit_code)?;
    let has_outputs = !output.outputs.is_empty();
    let recorded = recording.take(&mut output)?;
    // If a recording is the only output, no report is written.
    let needs_report = !has_outputs || !output.outputs.is_empty();
    let timeline = recording.timeline(&output, recorded.as_ref());
    let every = output.resolve_every(recorded.as_ref().map(|recorded| recorded.interval).or(timeline))?;
    let grouping = grouping.resolve(hooks.has_program_tags(), hooks.tag_format()?, recorded.is_some())?;
    let tags = hooks.take_tags(&target)?;
    let activity = spans.resolve(blocks.allocator_latency, &target)?.or_else(|| stalls_as_spans(&output, &events));
    let threads = hooks.thread_filter(&target);
    let outputs = if needs_report { resolve_outputs(output.outputs, output.format)? } else { Vec::new() };
    check_heap_profiles(&stacks.heap_profiles, &outputs)?;
    // If the overhead has a limit, each call is traced as long as the overhead stays below the limit.
    let rate = sampling.rate().filter(|_| heap.max_overhead.is_none());
    Ok(Config {
        metric,
        events,
        outputs,
        debuginfod: stacks.servers(),
        heap_profiles: stacks.heap_profiles,
        recording: recorded,
        every,
        timeline,
        activity,
        accounts: None,
        target: selected,
        duration: end.duration,
        grouping,
        heap,
        sampling: rate,
        allow_patching: sampling.allow_patching,
        blocks,
        pages,
        pages_of_others,
        touches,
        tuning,
        top: output.top,
        keep_ended: output.keep_ended,
        all_stacks: stacks.all_stacks,
        shards,
        threads,
        tag_functions: tags.functions,
        tag_probes: tags.probes,
        tag_preset: tags.preset,
        user_hooks: hooks.into_user_hooks(),
        quiet: general.quiet,
    })
}

/// Returns a configuration that records stalls as activity, if the run traces stalls and an output shows them over
/// time.
fn stalls_as_spans(output: &OutputArgs, events: &[EventClass]) -> Option<ActivityConfig> {
    let is_shown = events.iter().any(|class| class.counts_stalls()) && output.has(Format::shows_spans);
    is_shown.then(ActivityConfig::default)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_host::debuginfod::Servers;
    use memtrace_host::kernel::ThreadFilter;
    use memtrace_model::{Bytes, GroupBy, Metric, Pid};
    use memtrace_object::allocators::UserHooks;

    use super::*;
    use crate::cli::args::{parsed_trace, resolved_trace as resolved};
    use crate::options::{BlockArgs, HeapArgs, PageArgs, TouchArgs, TuningArgs};
    use crate::run_kit::config::{Destination, Output};
    use crate::run_kit::grouping::Grouping;

    #[test]
    fn defaults_are_these() {
        let expected = Config {
            user_hooks: UserHooks::default(),
            threads: ThreadFilter::default(),
            tag_functions: Vec::new(),
            tag_probes: Vec::new(),
            tag_preset: None,
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
            metric: None,
            grouping: Grouping::default(),
            heap: HeapArgs::default(),
            sampling: None,
            allow_patching: false,
            blocks: BlockArgs::default(),
            pages: PageArgs::default(),
            pages_of_others: false,
            touches: TouchArgs::default(),
            tuning: parsed_trace("").run.tuning,
            top: None,
            keep_ended: 1000,
            all_stacks: false,
            shards: None,
            debuginfod: Servers::Environment,
            quiet: false,
        };
        assert_eq!(resolved("--pid 4711"), Ok(expected));
    }

    #[test]
    fn trends_have_intervals_if_nothing_else_has_them() {
        let interval = |line: &str| {
            let config = resolved(line).expect("a valid configuration");
            config.trend_interval().map(|interval| interval.as_millis())
        };
        for (line, expected) in [
            ("--pid 7", Some(1000)),
            ("--all", Some(1000)),
            ("--pid 7 -d 1s", Some(250)),
            ("--pid 7 -d 64s", Some(2000)),
            ("--pid 7 -d 1h", Some(10_000)),
            ("--pid 7 --record a", None),
            ("--pid 7 -o a.html", None),
            ("--pid 7 --every 10s", None),
            ("--pid 7 --older 1m", None),
            ("--pid 7 --events fault", None),
            ("--pid 7 -q", None),
            ("--pid 7 -q -o a.json", Some(1000)),
        ] {
            assert_eq!(interval(line), expected, "{line}");
        }
    }

    #[test]
    fn options_of_each_group_reach_the_configuration() {
        let expected = Config {
            user_hooks: UserHooks::default(),
            threads: ThreadFilter::default(),
            tag_functions: Vec::new(),
            tag_probes: Vec::new(),
            tag_preset: None,
            target: Target::Command {
                argv: vec!["ls".into(), "-l".into(), "--pid".into()],
                pass_exit_code: true,
                children: true,
                holds_execs: true,
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
            metric: Some(Metric::LiveCount),
            grouping: Grouping { by: GroupBy::Thread, ..Grouping::default() },
            heap: HeapArgs { min_size: Some(Bytes(1024)), ..HeapArgs::default() },
            sampling: None,
            allow_patching: false,
            blocks: BlockArgs { older: Some(Duration::from_secs(60)), ..BlockArgs::default() },
            pages: PageArgs { sample: NonZeroU32::new(64) },
            pages_of_others: false,
            touches: TouchArgs::default(),
            tuning: TuningArgs { protect: true, ..parsed_trace("").run.tuning },
            top: Some(3),
            keep_ended: 0,
            all_stacks: true,
            shards: NonZeroU32::new(16),
            debuginfod: Servers::Urls("http://a".into()),
            quiet: true,
        };
        let line = "--events heap,fault --sample 64 -d 1m30s -o a.json -o - --format txt -m live-count --by thread --min-size 1k --older 1m --top 3 --keep-ended 0 --all-stacks \
                    --shards 16 --protect --debuginfod=http://a -q --exit-code --hold-exec -- ls -l --pid";
        assert_eq!(resolved(line), Ok(expected));
    }
}
