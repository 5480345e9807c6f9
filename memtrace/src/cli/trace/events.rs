//! Checks that the traced event classes include the classes that the options need.

use memtrace_model::{EventClass, PartKeys, Quantity, Requirement};

use super::args::TraceArgs;
use crate::options::BlockSizes;
use crate::options::conflict::{ArgConflict, first_given};
use crate::options::source::AllocationSource;
use crate::targets::select::ProbeSite;

/// Returns the traced event classes, each once. Refuses options that need another class.
pub(in crate::cli) fn resolve(args: &TraceArgs) -> Result<Vec<EventClass>, ArgConflict> {
    let events = match samples_pages_of_others(args) {
        true => vec![EventClass::Heap, EventClass::Fault],
        false => args.events.classes(),
    };
    let has = |fact: fn(EventClass) -> bool| events.iter().any(|&class| fact(class));
    if !has(EventClass::probes_allocators)
        && let Some(option) = heap_option(args)
    {
        return Err(ArgConflict::new(
            format!("{option} needs heap events, which are not traced"),
            format!("remove it, or add heap: --events heap,{}", names(&events)),
        ));
    }
    if !args.heap.source.attaches_probes()
        && let Some(option) = probe_option(args)
    {
        return Err(ArgConflict::new(
            format!("{option} needs probes in allocators, and --source own attaches none"),
            "remove one of them",
        ));
    }
    if !args.heap.source.attaches_probes()
        && let Some(option) = block_filter(args)
    {
        return Err(ArgConflict::new(
            format!("{option} needs ages and threads of blocks, which --source own does not have"),
            "remove one of them",
        ));
    }
    check_samples(args)?;
    let is_by_memory = args.common.grouping.by.iter().any(|by| by.parts() == PartKeys::MEMORY);
    let page_option = if is_by_memory { Some("--by memory") } else { args.pages.sample.map(|_| "--sample") };
    if let Some(option) = page_option.filter(|_| !has(EventClass::counts_pages)) {
        return Err(ArgConflict::new(
            format!("{option} needs page faults, which are not traced"),
            "remove it, or trace page faults: `memtrace faults`",
        ));
    }
    if args.touches.cold_after.is_some() && !events.iter().any(|class| Quantity::ColdBytes.is_of(*class)) {
        return Err(ArgConflict::new(
            "--cold-after needs heap or map events, which are not traced",
            format!("remove it, or add them: --events heap,{}", names(&events)),
        ));
    }
    if let Some(metric) = args.common.stacks.metric.filter(|metric| !events.iter().any(|class| metric.is_of(*class))) {
        let other = EventClass::ALL.iter().find(|class| metric.is_of(**class)).copied().unwrap_or_default();
        return Err(ArgConflict::new(
            format!("--metric {} needs {} events, which are not traced", metric.name(), other.name()),
            format!("remove it, or add them: --events {},{}", other.name(), names(&events)),
        ));
    }
    Ok(events)
}

/// Returns true if the blocks of the whole machine are sampled. Many processes have no sampler and cannot be patched, so page faults
/// of these processes are sampled too, unless the user has chosen the event classes.
pub(in crate::cli) fn samples_pages_of_others(args: &TraceArgs) -> bool {
    args.events.events.is_empty()
        && args.common.target.is_whole_machine()
        && args.heap.source == AllocationSource::Auto
        && args.sampling.rate().is_some()
        && args.heap.max_overhead.is_none()
}

/// Refuses options that need each call if samples are taken.
fn check_samples(args: &TraceArgs) -> Result<(), ArgConflict> {
    let Some(option) = args.sampling.given() else { return Ok(()) };
    let is_usable = args.heap.size == Some(BlockSizes::Usable);
    if let Some(other) = call_option(args).or(is_usable.then_some("--size usable")) {
        return Err(ArgConflict::new(
            format!("{other} needs each call of an allocator, and {option} takes samples"),
            "remove one of them",
        ));
    }
    if args.common.target.hold_exec {
        let reason = match args.sampling.allow_patching {
            true => {
                "keeps memtrace attached to the command as its tracer, and --allow-patching changes no traced process"
                    .into()
            }
            false => {
                format!("stops processes until each call of their allocators is probed, and {option} takes samples")
            }
        };
        return Err(ArgConflict::new(format!("--hold-exec {reason}"), "remove one of them"));
    }
    if args.touches.cold_after.is_some() {
        return Err(ArgConflict::new(
            "--cold-after needs the address of each block, which some samplers do not report",
            format!("remove {option}, or --cold-after"),
        ));
    }
    if let Some(rate) = args.sampling.given_rate().filter(|_| args.heap.max_overhead.is_some()) {
        return Err(ArgConflict::new(
            format!("--max-overhead limits the cost of tracing each call, and {rate} takes samples"),
            "remove one of them; --max-overhead with --allow-patching takes samples if tracing each call costs too much",
        ));
    }
    Ok(())
}

/// Returns a given option that needs heap events.
fn heap_option(args: &TraceArgs) -> Option<&'static str> {
    let common = &args.common;
    let others = [
        ("--metric peak-bytes", common.stacks.metric.is_some_and(|metric| metric.needs(Requirement::Peaks))),
        ("--hold-exec", common.target.hold_exec),
        ("--exclude thread=", common.target.excluded_threads().next().is_some()),
        ("--by allocator", common.grouping.by.iter().any(|by| by.parts() == PartKeys::ALLOCATOR)),
    ];
    let given = args.hooks.given().or_else(|| args.heap.given()).or_else(|| args.sampling.given());
    given.or_else(|| args.blocks.given()).or_else(|| first_given(&others))
}

/// Returns a given option that applies to traced calls of allocators, and not to samples that targets take.
fn probe_option(args: &TraceArgs) -> Option<&'static str> {
    let others = [
        ("--max-overhead", args.heap.max_overhead.is_some()),
        // Some samplers report no address of the block, so touches of the block are not known.
        ("--cold-after", args.touches.cold_after.is_some()),
    ];
    call_option(args).or_else(|| first_given(&others))
}

/// Returns a given option that applies to each traced call of an allocator, and to no sample.
fn call_option(args: &TraceArgs) -> Option<&'static str> {
    first_given(&[
        ("--allocator", !args.hooks.allocators.is_empty()),
        ("--hook", !args.hooks.hooks.is_empty()),
        ("--probe-site", args.heap.probe_site != ProbeSite::default()),
        ("--allocator-latency", args.blocks.allocator_latency.is_some()),
    ])
}

/// Returns a given option that selects blocks by their age or their thread. Go's profile has neither ages nor threads.
fn block_filter(args: &TraceArgs) -> Option<&'static str> {
    first_given(&[
        ("--older", args.blocks.older.is_some()),
        ("--thread", !args.hooks.threads.is_empty()),
        ("--exclude thread=", args.common.target.excluded_threads().next().is_some()),
    ])
}

fn names(events: &[EventClass]) -> String {
    events.iter().map(|class| class.name()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{parsed_trace as parse, resolved_trace};

    #[test]
    fn heap_events_are_the_default() {
        assert_eq!(resolve(&parse("")), Ok(vec![EventClass::Heap]));
        assert_eq!(resolve(&parse("--events fault,heap,fault")), Ok(vec![EventClass::Heap, EventClass::Fault]));
    }

    #[test]
    fn whole_machine_with_samples_has_page_faults_of_the_others() {
        let (heap, both) = (vec![EventClass::Heap], vec![EventClass::Heap, EventClass::Fault]);
        let resolved = |line: &str| {
            let config = resolved_trace(line).expect("a valid configuration");
            (config.events, config.pages_of_others, config.pages.one_in().get())
        };
        for (line, sample) in [
            ("--all --sample-interval 512k", 64),
            ("--all --samples-per-second 100 --allow-patching --sample 16", 16),
            ("--all --exclude user=root --allow-patching --min-size 1k --older 1m", 64),
        ] {
            assert_eq!(resolved(line), (both.clone(), true, sample), "{line}");
        }
        for line in [
            "--all",
            "--all --max-overhead 5% --allow-patching",
            "--all --comm a --sample-interval 512k",
            "--pid 7 --sample-interval 512k",
            "--allow-patching -- ls",
            "--all --sample-interval 512k --source own",
            "--all --sample-interval 512k --events heap",
        ] {
            assert_eq!(resolved(line), (heap.clone(), false, 1), "{line}");
        }
        // Both classes have all processes then.
        assert_eq!(resolved("--all --sample-interval 512k --events heap,fault"), (both, false, 1));
    }

    #[test]
    fn options_of_probes_are_refused_without_probes() {
        let refused = |line: &str| resolve(&parse(line)).unwrap_err().message;
        assert_eq!(
            refused("--source own --probe-site entry"),
            "--probe-site needs probes in allocators, and --source own attaches none"
        );
        assert!(refused("--source own --allocator-latency 1ms").starts_with("--allocator-latency needs probes"));
        assert!(refused("--source own --cold-after 10s").starts_with("--cold-after needs probes"));
        assert!(resolve(&parse("--source auto --cold-after 10s")).is_ok());
        assert!(resolve(&parse("--source own --min-size 1k")).is_ok());
        // jemalloc reports both sizes.
        assert!(resolve(&parse("--source own --size usable")).is_ok());
        assert!(resolve(&parse("--source exact --probe-site entry")).is_ok());
    }

    #[test]
    fn filters_of_blocks_are_refused_without_probes() {
        for (line, option) in
            [("--older 1m", "--older"), ("--thread main", "--thread"), ("--exclude thread=worker", "--exclude thread=")]
        {
            let conflict = resolve(&parse(&format!("--source own {line}"))).unwrap_err();
            let expected = format!("{option} needs ages and threads of blocks, which --source own does not have");
            assert_eq!(conflict.message, expected);
            assert!(resolve(&parse(line)).is_ok());
        }
    }

    #[test]
    fn option_needs_its_event_class() {
        let refused = |line: &str| resolve(&parse(line)).unwrap_err().message;
        assert!(refused("--events fault --older 1s").starts_with("--older needs heap events"));
        assert!(refused("--events map --lifetimes").starts_with("--lifetimes needs heap events"));
        assert!(refused("--events map --hold-exec -- ls").starts_with("--hold-exec needs heap events"));
        assert!(refused("--events fault -m peak-bytes").starts_with("--metric peak-bytes needs heap events"));
        assert!(refused("--sample 8").starts_with("--sample needs page faults"));
        assert!(refused("--by memory").starts_with("--by memory needs page faults"));
        assert_eq!(refused("-m stall-time"), "--metric stall-time needs reclaim events, which are not traced");
        assert_eq!(
            refused("--events reclaim -m live-bytes"),
            "--metric live-bytes needs heap events, which are not traced"
        );
        assert!(resolve(&parse("--events heap,reclaim -m stall-count")).is_ok());
        assert!(resolve(&parse("--events heap,fault --older 1s --sample 8")).is_ok());
    }
}
