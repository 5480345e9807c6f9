//! The traced event classes, and the options that need them.

use std::num::NonZeroU32;

use memtrace_model::{EventClass, PartKeys, Quantity, Requirement};

use super::args::TraceArgs;
use super::conflict::ArgConflict;
use super::filters::Excluded;
use crate::targets::select::ProbeSite;

/// Sets the event class of a subcommand that traces `class`.
pub(super) fn only(mut args: TraceArgs, class: EventClass) -> Result<TraceArgs, ArgConflict> {
    if args.events.is_empty() {
        args.events.push(class);
        return Ok(args);
    }
    Err(ArgConflict::new(
        format!("--events is given to a subcommand that traces {} events", class.name()),
        "remove --events, or remove the subcommand and give all classes: --events heap,fault",
    ))
}

/// Returns the traced event classes, each once.
pub(super) fn resolve(args: &TraceArgs) -> Result<Vec<EventClass>, ArgConflict> {
    let mut events = args.events.clone();
    events.sort_unstable();
    events.dedup();
    if events.is_empty() {
        events.push(EventClass::default());
    }
    let has = |fact: fn(EventClass) -> bool| events.iter().any(|&class| fact(class));
    if !has(EventClass::probes_allocators)
        && let Some(option) = heap_option(args)
    {
        return Err(ArgConflict::new(
            format!("{option} needs heap events, which are not traced"),
            format!("remove it, or add heap: --events heap,{}", names(&events)),
        ));
    }
    let is_by_memory = args.by.iter().any(|by| by.parts() == PartKeys::MEMORY);
    let page_option = if is_by_memory { Some("--by memory") } else { args.sample.map(|_| "--sample") };
    if let Some(option) = page_option.filter(|_| !has(EventClass::counts_pages)) {
        return Err(ArgConflict::new(
            format!("{option} needs page faults, which are not traced"),
            "remove it, or trace page faults: `memtrace faults`",
        ));
    }
    if args.cold_after.is_some() && !events.iter().any(|class| Quantity::ColdBytes.is_of(*class)) {
        return Err(ArgConflict::new(
            "--cold-after needs heap or map events, which are not traced",
            format!("remove it, or add them: --events heap,{}", names(&events)),
        ));
    }
    if let Some(metric) = args.metric.filter(|metric| !events.iter().any(|class| metric.is_of(*class))) {
        let other = EventClass::ALL.iter().find(|class| metric.is_of(**class)).copied().unwrap_or_default();
        return Err(ArgConflict::new(
            format!("--metric {} needs {} events, which are not traced", metric.name(), other.name()),
            format!("remove it, or add them: --events {},{}", other.name(), names(&events)),
        ));
    }
    Ok(events)
}

/// Returns N of one page in N.
pub(super) fn page_sample(args: &TraceArgs) -> NonZeroU32 {
    args.sample.unwrap_or(NonZeroU32::MIN)
}

/// Returns a given option that needs heap events.
fn heap_option(args: &TraceArgs) -> Option<&'static str> {
    let options = [
        ("--metric peak-bytes", args.metric.is_some_and(|metric| metric.needs(Requirement::Peaks))),
        ("--older", args.older.is_some()),
        ("--lifetimes", args.lifetimes),
        ("--min-size", args.min_size.is_some()),
        ("--max-size", args.max_size.is_some()),
        ("--allocator", !args.allocators.is_empty()),
        ("--hook", !args.hooks.is_empty()),
        ("--thread", !args.threads.is_empty()),
        ("--exclude thread=", args.target.exclude.iter().any(|excluded| matches!(excluded, Excluded::Threads(_)))),
        ("--tag-from", !args.tag_from.is_empty()),
        ("--size", args.size.is_some()),
        ("--allocator-latency", args.activity.allocator_latency.is_some()),
        ("--by allocator", args.by.iter().any(|by| by.parts() == PartKeys::ALLOCATOR)),
        ("--max-overhead", args.max_overhead.is_some()),
        ("--probe-site", args.probe_site != ProbeSite::default()),
    ];
    options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

fn names(events: &[EventClass]) -> String {
    events.iter().map(|class| class.name()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::Arguments;
    use super::*;

    fn parse(line: &str) -> TraceArgs {
        let words = std::iter::once("memtrace").chain(line.split_whitespace());
        Arguments::try_parse_from(words).expect("each argument is valid").trace
    }

    #[test]
    fn heap_events_are_the_default() {
        assert_eq!(resolve(&parse("")), Ok(vec![EventClass::Heap]));
        assert_eq!(resolve(&parse("--events fault,heap,fault")), Ok(vec![EventClass::Heap, EventClass::Fault]));
        assert_eq!(resolve(&only(parse(""), EventClass::Fault).unwrap()), Ok(vec![EventClass::Fault]));
        assert!(only(parse("--events heap"), EventClass::Fault).is_err());
    }

    #[test]
    fn option_needs_its_event_class() {
        let refused = |line: &str| resolve(&parse(line)).unwrap_err().message;
        assert!(refused("--events fault --older 1s").starts_with("--older needs heap events"));
        assert!(refused("--events map --lifetimes").starts_with("--lifetimes needs heap events"));
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
