//! Sources of sampled blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::format::SIZE_UNITS;
use crate::{Bytes, ImageEnd, Pid};

/// Maximum number of processes in [`Samplers`]. The samplers of further processes are kept without their PIDs.
const MAX_PROCESSES: usize = 1000;

/// Number of processes in [`Samplers`] above which ended processes are removed.
const MOST_ENDED: usize = 500;

/// Maximum number of different samplers in [`Samplers`]. A target chooses its interval, so there could be any number. Further
/// samplers are known without their interval.
const MAX_SAMPLERS: usize = 100;

/// Source of sampled blocks: a sampler that the target has, or has got from memtrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SampleSource {
    /// The heap profile that the runtime of Go keeps in the target's memory.
    Go,
    /// The sampler of Google's tcmalloc or of gperftools.
    Tcmalloc,
    /// The sampler of jemalloc.
    Jemalloc,
    /// The USDT probes `otel_memory` of a library.
    OtelMemory,
    /// The USDT probes `ddheap` of a library.
    DdHeap,
    /// The allocator of the process, which memtrace has patched.
    Patched,
}

impl SampleSource {
    /// Every source, ordered as in reports.
    const ALL: [Self; 6] = [Self::Go, Self::Tcmalloc, Self::Jemalloc, Self::OtelMemory, Self::DdHeap, Self::Patched];

    /// Returns the name in JSON and in recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Tcmalloc => "tcmalloc",
            Self::Jemalloc => "jemalloc",
            Self::OtelMemory => "otel_memory",
            Self::DdHeap => "ddheap",
            Self::Patched => "patched",
        }
    }

    /// Returns the source with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }

    /// Returns the words for the user: `Go's own profile`.
    const fn words(self) -> &'static str {
        match self {
            Self::Go => "Go's own profile",
            Self::Tcmalloc => "tcmalloc's own samples",
            Self::Jemalloc => "jemalloc's own samples",
            Self::OtelMemory => "samples of the otel_memory probes",
            Self::DdHeap => "samples of the ddheap probes",
            Self::Patched => "samples of its patched allocator",
        }
    }
}

/// Sampler of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sampler {
    /// Source of the samples.
    pub source: SampleSource,
    /// Mean number of allocated bytes for each sample, if known.
    pub interval: Option<Bytes>,
}

impl fmt::Display for Sampler {
    /// Writes the source and its interval: `Go's own profile, one sample each 512 KiB`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.source.words();
        match self.interval {
            Some(interval) => write!(out, "{words}, one sample each {}", interval_text(interval)),
            None => out.write_str(words),
        }
    }
}

/// Returns a size without decimals, if it is a multiple of its unit: `512 KiB`.
fn interval_text(interval: Bytes) -> String {
    let is_multiple = |scale: u64| interval.0 >= scale && interval.0.is_multiple_of(scale);
    match SIZE_UNITS.iter().find(|(name, scale)| *name != "B" && is_multiple(*scale)) {
        Some((name, scale)) => format!("{} {name}", interval.0 / scale),
        None => interval.to_string(),
    }
}

/// Samplers of the processes of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samplers {
    by_process: BTreeMap<Pid, BTreeSet<Sampler>>,
    /// Samplers of processes that are not known.
    others: BTreeSet<Sampler>,
    /// Different samplers in `by_process` and `others`, each with the number of its occurrences.
    all: BTreeMap<Sampler, usize>,
}

impl Samplers {
    /// Adds a sampler of a process. It replaces an earlier sampler of this process with the same source.
    pub fn add(&mut self, pid: Pid, sampler: Sampler) {
        if !self.by_process.contains_key(&pid) && self.by_process.len() >= MAX_PROCESSES {
            self.add_of_unknown(sampler);
            return;
        }
        let old = self.of(pid).find(|known| known.source == sampler.source);
        if old == Some(sampler) {
            return;
        }
        if let Some(old) = old {
            self.by_process.entry(pid).or_default().remove(&old);
            self.remove_occurrence(old);
        }
        let sampler = self.limited(sampler);
        self.by_process.entry(pid).or_default().insert(sampler);
        *self.all.entry(sampler).or_default() += 1;
    }

    /// Returns true if a process has a heap profile of Go's runtime.
    #[must_use]
    pub fn include_go(&self) -> bool {
        self.all().any(|sampler| sampler.source == SampleSource::Go)
    }

    /// Adds a sampler of a process that is not known.
    pub fn add_of_unknown(&mut self, sampler: Sampler) {
        let sampler = self.limited(sampler);
        if self.others.insert(sampler) {
            *self.all.entry(sampler).or_default() += 1;
        }
    }

    /// Returns the sampler, without its interval if there are too many samplers.
    fn limited(&self, sampler: Sampler) -> Sampler {
        let has_room = self.all.contains_key(&sampler) || self.all.len() < MAX_SAMPLERS;
        if has_room { sampler } else { Sampler { interval: None, ..sampler } }
    }

    /// Adds the samplers of `others`.
    pub fn merge(&mut self, others: &Self) {
        others.others.iter().for_each(|&sampler| self.add_of_unknown(sampler));
        others.iter().for_each(|(pid, sampler)| self.add(pid, sampler));
    }

    /// Ends the image of a process. After an exec, its samplers count as the samplers of an unknown process. After another end,
    /// the samplers stay with the process unless many processes are known, because running processes need the room.
    pub fn end_image(&mut self, pid: Pid, end: ImageEnd) {
        if end != ImageEnd::Exec && self.by_process.len() <= MOST_ENDED {
            return;
        }
        for sampler in self.by_process.remove(&pid).unwrap_or_default() {
            self.add_of_unknown(sampler);
            self.remove_occurrence(sampler);
        }
    }

    fn remove_occurrence(&mut self, sampler: Sampler) {
        if let Some(occurrences) = self.all.get_mut(&sampler) {
            *occurrences -= 1;
        }
        self.all.retain(|_, occurrences| *occurrences > 0);
    }

    /// Iterates over the samplers of processes that are not known.
    pub fn of_unknown(&self) -> impl Iterator<Item = Sampler> + '_ {
        self.others.iter().copied()
    }

    /// Iterates over the different samplers of all processes.
    pub fn all(&self) -> impl Iterator<Item = Sampler> + '_ {
        self.all.keys().copied()
    }

    /// Iterates over the samplers of a process.
    pub fn of(&self, pid: Pid) -> impl Iterator<Item = Sampler> + '_ {
        self.by_process.get(&pid).into_iter().flatten().copied()
    }

    /// Iterates over the processes, each with one of its samplers. A process occurs once for each sampler.
    pub fn iter(&self) -> impl Iterator<Item = (Pid, Sampler)> + '_ {
        self.by_process.iter().flat_map(|(&pid, samplers)| samplers.iter().map(move |&sampler| (pid, sampler)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO: Sampler = Sampler { source: SampleSource::Go, interval: Some(Bytes(512 << 10)) };

    #[test]
    fn a_sampler_is_described_with_its_interval() {
        assert_eq!(GO.to_string(), "Go's own profile, one sample each 512 KiB");
        let odd = Sampler { interval: Some(Bytes(1_000_000)), ..GO };
        assert_eq!(odd.to_string(), "Go's own profile, one sample each 976.56 KiB");
        let otel = Sampler { source: SampleSource::OtelMemory, interval: None };
        assert_eq!(otel.to_string(), "samples of the otel_memory probes");
        let patched = Sampler { source: SampleSource::Patched, interval: Some(Bytes(64 << 10)) };
        assert_eq!(patched.to_string(), "samples of its patched allocator, one sample each 64 KiB");
        for source in SampleSource::ALL {
            assert_eq!(SampleSource::from_name(source.name()), Some(source));
        }
    }

    #[test]
    fn samplers_are_listed_by_process() {
        let jemalloc = Sampler { source: SampleSource::Jemalloc, interval: None };
        let faster = Sampler { interval: Some(Bytes(4096)), ..GO };
        let mut all = Samplers::default();
        all.add(Pid(2), GO);
        all.add(Pid(1), GO);
        all.add(Pid(2), jemalloc);
        all.add(Pid(2), faster);
        assert_eq!(all.iter().collect::<Vec<_>>(), [(Pid(1), GO), (Pid(2), faster), (Pid(2), jemalloc)]);
        assert_eq!(all.of(Pid(2)).collect::<Vec<_>>(), [faster, jemalloc]);
        assert_eq!(all.of(Pid(3)).count(), 0);
        assert_eq!(all.all().collect::<Vec<_>>(), [faster, GO, jemalloc]);
        all.add(Pid(1), faster);
        assert_eq!(all.all().collect::<Vec<_>>(), [faster, jemalloc], "no process has the earlier interval");
        all.add_of_unknown(GO);
        all.add(Pid(3), GO);
        all.add(Pid(3), faster);
        assert_eq!(all.all().collect::<Vec<_>>(), [faster, GO, jemalloc]);
    }

    #[test]
    fn samplers_before_an_exec_belong_to_no_process() {
        let mut all = Samplers::default();
        [1, 2, 3].map(Pid).into_iter().for_each(|pid| all.add(pid, GO));
        all.end_image(Pid(1), ImageEnd::Exec);
        all.end_image(Pid(2), ImageEnd::Exec);
        all.end_image(Pid(3), ImageEnd::Exit);
        assert_eq!(all.iter().collect::<Vec<_>>(), [(Pid(3), GO)]);
        assert_eq!((all.of_unknown().collect::<Vec<_>>(), all.all().collect::<Vec<_>>()), (vec![GO], vec![GO]));
        let mut merged = Samplers::default();
        merged.merge(&all);
        assert_eq!(merged, all);
    }

    #[test]
    fn ended_processes_leave_room_for_others() {
        let mut all = Samplers::default();
        for pid in (0..10_000).map(Pid) {
            all.add(pid, GO);
            all.end_image(pid, ImageEnd::Exit);
        }
        assert_eq!((all.iter().count(), all.all().count()), (MOST_ENDED, 1));
        assert_eq!(all.of(Pid(0)).count(), 1, "the first ones are named");
        all.add(Pid(20_000), GO);
        assert_eq!(all.of(Pid(20_000)).count(), 1);
    }

    #[test]
    fn the_number_of_samplers_is_limited() {
        let mut all = Samplers::default();
        for pid in 0..10_000 {
            all.add(Pid(pid), Sampler { interval: Some(Bytes(u64::from(pid) % 200)), ..GO });
        }
        // One sampler has no interval.
        assert_eq!((all.all().count(), all.iter().count()), (MAX_SAMPLERS + 1, MAX_PROCESSES));
        assert_eq!(all.of(Pid(150)).collect::<Vec<_>>(), [Sampler { interval: None, ..GO }]);
        all.add(Pid(0), Sampler { source: SampleSource::Go, interval: Some(Bytes(7)) });
        assert_eq!(all.of(Pid(0)).collect::<Vec<_>>(), [Sampler { interval: Some(Bytes(7)), ..GO }]);
    }

    #[test]
    fn samplers_of_one_process_do_not_hide_others() {
        let mut all = Samplers::default();
        for interval in 0..10_000 {
            all.add(Pid(1), Sampler { interval: Some(Bytes(interval)), ..GO });
        }
        all.add(Pid(2), GO);
        assert_eq!(all.all().collect::<Vec<_>>(), [Sampler { interval: Some(Bytes(9999)), ..GO }, GO]);
        assert_eq!(all.of(Pid(2)).collect::<Vec<_>>(), [GO]);
    }
}
