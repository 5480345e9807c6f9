//! Samplers of the traced processes, as facts of a history.
//!
//! An item has the PID and the source, and its text has the interval in bytes: `4711 go`, `524288`. The interval is `-` if it is
//! not known. If the process is not known, the PID is 0, and the item has the interval too: `0 go 524288`. If a process no longer
//! has a sampler, the text of this sampler is empty.

use std::collections::BTreeMap;

use memtrace_model::{Bytes, Pid, SampleSource, Sampler, Samplers};

use super::row::text;
use crate::interval::Fact;

/// Topic of the facts.
pub(super) const TOPIC: &str = "sampler";

/// PID of a process that is not known.
const UNKNOWN: Pid = Pid(0);

/// Returns a fact for each sampler of a process.
pub(super) fn facts(samplers: &Samplers) -> impl Iterator<Item = Fact> + '_ {
    rows(samplers).map(|(item, interval)| text(TOPIC, item, &interval))
}

/// Returns the facts that replace the samplers in `before` by the samplers in `now`.
pub fn of_changed_samplers(before: &Samplers, now: &Samplers) -> Vec<Fact> {
    let mut before: BTreeMap<_, _> = rows(before).collect();
    let is_new = |(item, interval): &(String, String)| before.remove(item).as_ref() != Some(interval);
    let mut facts: Vec<_> = rows(now).filter(is_new).map(|(item, interval)| text(TOPIC, item, &interval)).collect();
    facts.extend(before.into_keys().map(|item| text(TOPIC, item, "")));
    facts
}

/// Returns the item and the text of each fact.
fn rows(samplers: &Samplers) -> impl Iterator<Item = (String, String)> + '_ {
    let interval = |interval: Option<Bytes>| interval.map_or_else(|| String::from("-"), |bytes| bytes.0.to_string());
    let known = samplers
        .iter()
        .map(move |(pid, sampler)| (format!("{pid} {}", sampler.source.name()), interval(sampler.interval)));
    let unknown = samplers.of_unknown().map(move |sampler| {
        let interval = interval(sampler.interval);
        (format!("{UNKNOWN} {} {interval}", sampler.source.name()), interval)
    });
    known.chain(unknown)
}

/// Adds the sampler that a fact states. Ignores a malformed fact.
pub(super) fn add(samplers: &mut Samplers, item: &str, text: &str) {
    match read(item, text) {
        Some((UNKNOWN, sampler)) => samplers.add_of_unknown(sampler),
        Some((pid, sampler)) => samplers.add(pid, sampler),
        None => {}
    }
}

/// Reads the item and the text of a fact; `None` if they are malformed.
fn read(item: &str, text: &str) -> Option<(Pid, Sampler)> {
    let mut words = item.split(' ');
    let (pid, source) = (words.next()?, words.next()?);
    let interval = match text {
        "-" => None,
        interval => Some(Bytes(interval.parse().ok()?)),
    };
    Some((Pid(pid.parse().ok()?), Sampler { source: SampleSource::from_name(source)?, interval }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::RecordedFacts;

    #[test]
    fn malformed_facts_are_no_samplers() {
        for (item, text) in [("", "-"), ("7", "-"), ("x go", "-"), ("7 malloc", "-"), ("7 go", ""), ("7 go", "1k")] {
            assert_eq!(read(item, text), None, "{item}: {text}");
        }
        let sampler = Sampler { source: SampleSource::DdHeap, interval: Some(Bytes(12)) };
        assert_eq!(read("7 ddheap", "12"), Some((Pid(7), sampler)));
    }

    #[test]
    fn changed_samplers_replace_the_earlier_ones() {
        let sampler = |source, bytes| Sampler { source, interval: Some(Bytes(bytes)) };
        let [go, finer] = [4096, 512].map(|bytes| sampler(SampleSource::Go, bytes));
        let (mut before, mut now) = (Samplers::default(), Samplers::default());
        [1, 2, 3].into_iter().for_each(|pid| before.add(Pid(pid), go));
        now.add(Pid(2), go);
        now.add(Pid(3), finer);
        now.add(Pid(3), sampler(SampleSource::Jemalloc, 64));
        let fact = |item: &'static str, interval| text(TOPIC, item, interval);
        let changes = of_changed_samplers(&before, &now);
        assert_eq!(changes, [fact("3 go", "512"), fact("3 jemalloc", "64"), fact("1 go", "")]);
        let mut recorded = RecordedFacts::new(of_changed_samplers(&Samplers::default(), &before));
        assert_eq!(recorded.samplers(), before);
        recorded.add(changes);
        assert_eq!(recorded.samplers(), now);
    }
}
