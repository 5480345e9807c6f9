//! Which events are followed, and which arguments go with them.

use std::num::NonZeroU32;

use super::args::Trace;
use super::resolve::Contradiction;
use crate::model::{EventClass, GroupBy, Metric};
use crate::session::ProbeSite;

/// What was given to a command that is about `class` alone.
pub(super) fn only(mut given: Trace, class: EventClass) -> Result<Trace, Contradiction> {
    if given.events.is_empty() {
        given.events.push(class);
        return Ok(given);
    }
    Err(Contradiction::new(
        format!("--events is given to a command that follows {} events alone", class.name()),
        "leave --events out, or leave the command out and give both: --events heap,fault",
    ))
}

/// The events that are to be followed, each once.
pub(super) fn resolve(given: &Trace) -> Result<Vec<EventClass>, Contradiction> {
    let mut events = given.events.clone();
    events.sort_unstable();
    events.dedup();
    if events.is_empty() {
        events.push(EventClass::default());
    }
    let has = |fact: fn(EventClass) -> bool| events.iter().any(|&class| fact(class));
    if !has(EventClass::probes_allocators)
        && let Some(option) = about_blocks(given)
    {
        return Err(Contradiction::new(
            format!("{option} is about what allocators hand out, and heap events are not followed"),
            format!("leave it out, or add heap: --events heap,{}", names(&events)),
        ));
    }
    let about_pages = if given.by == GroupBy::Memory { Some("--by memory") } else { given.sample.map(|_| "--sample") };
    if let Some(option) = about_pages.filter(|_| !has(EventClass::counts_pages)) {
        return Err(Contradiction::new(
            format!("{option} is about pages, and page faults are not followed"),
            "leave it out, or follow them: `memtrace faults`",
        ));
    }
    if let Some(metric) = given.metric.filter(|metric| !events.iter().any(|class| class.has(*metric))) {
        let other = EventClass::ALL.iter().find(|class| class.has(metric)).copied().unwrap_or_default();
        return Err(Contradiction::new(
            format!("--metric {} is of {} events, and they are not followed", metric.name(), other.name()),
            format!("leave it out, or add them: --events {},{}", other.name(), names(&events)),
        ));
    }
    Ok(events)
}

/// The metric that is drawn: the one that is asked for, or what there is to see.
pub(super) fn metric(given: &Trace, events: &[EventClass]) -> Metric {
    // What a process had resident or mapped is gone when it has ended.
    let first = events.first().copied().unwrap_or_default().facts();
    let default = if given.command.is_empty() { first.metrics[0] } else { first.command_metric };
    given.metric.unwrap_or(default)
}

/// Of one page in how many is told.
pub(super) fn page_sample(given: &Trace) -> NonZeroU32 {
    given.sample.unwrap_or(NonZeroU32::MIN)
}

/// An option that says something of blocks alone.
fn about_blocks(given: &Trace) -> Option<&'static str> {
    let options = [
        ("--metric peak-bytes", given.metric == Some(Metric::PeakBytes)),
        ("--older", given.older.is_some()),
        ("--min-size", given.min_size.is_some()),
        ("--max-size", given.max_size.is_some()),
        ("--allocator", !given.allocators.is_empty()),
        ("--hook", !given.hooks.is_empty()),
        ("--by allocator", given.by == GroupBy::Allocator),
        ("--max-overhead", given.max_overhead.is_some()),
        ("--probe-site", given.probe_site != ProbeSite::default()),
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

    fn given(line: &str) -> Trace {
        let words = std::iter::once("memtrace").chain(line.split_whitespace());
        Arguments::try_parse_from(words).expect("each argument is right by itself").trace
    }

    #[test]
    fn heap_events_are_followed_unless_others_are_named() {
        assert_eq!(resolve(&given("")), Ok(vec![EventClass::Heap]));
        assert_eq!(resolve(&given("--events fault,heap,fault")), Ok(vec![EventClass::Heap, EventClass::Fault]));
        assert_eq!(resolve(&only(given(""), EventClass::Fault).unwrap()), Ok(vec![EventClass::Fault]));
        assert!(only(given("--events heap"), EventClass::Fault).is_err());
    }

    #[test]
    fn an_option_goes_with_the_events_that_it_is_about() {
        let refused = |line: &str| resolve(&given(line)).unwrap_err().message;
        assert!(refused("--events fault --older 1s").starts_with("--older is about what allocators"));
        assert!(refused("--events fault -m peak-bytes").starts_with("--metric peak-bytes is about"));
        assert!(refused("--sample 8").starts_with("--sample is about pages"));
        assert!(refused("--by memory").starts_with("--by memory is about pages"));
        assert_eq!(refused("-m stall-time"), "--metric stall-time is of reclaim events, and they are not followed");
        assert_eq!(
            refused("--events reclaim -m live-bytes"),
            "--metric live-bytes is of heap events, and they are not followed"
        );
        assert!(resolve(&given("--events heap,reclaim -m stall-count")).is_ok());
        assert!(resolve(&given("--events heap,fault --older 1s --sample 8")).is_ok());
    }

    #[test]
    fn of_a_commands_pages_those_are_drawn_that_were_touched() {
        let of = |line: &str| {
            let given = given(line);
            metric(&given, &resolve(&given).unwrap())
        };
        assert_eq!(of("--events fault -- ls"), Metric::AllocBytes);
        assert_eq!(of("--events fault --pid 1"), Metric::LiveBytes);
        assert_eq!(of("--events fault -m live-count -- ls"), Metric::LiveCount);
        assert_eq!(of("--events reclaim -- ls"), Metric::StallTime);
        assert_eq!(of("--events heap,reclaim -- ls"), Metric::LiveBytes);
        assert_eq!(of("-- ls"), Metric::LiveBytes);
    }
}
