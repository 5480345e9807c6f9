//! Reads the memory of processes, cgroups, the machine and memtrace over time, for recordings.
//!
//! The sampler avoids files such as `smaps`: when they are read, the kernel takes the lock of the target's memory map.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::path::PathBuf;
use std::process;

use memtrace_history::{Fact, FactValue, Sample, Subject};
use memtrace_host::procfs::{self, GroupReading, MemoryGroups};
use memtrace_model::{Cgroup, ImageId, MemoryCounter, Pid};
use rustc_hash::FxHashMap;

/// Maximum number of processes in one reading; the next reading continues with the others. Reading one process takes
/// the kernel tens of microseconds.
const MAX_PROCESSES: usize = 256;

/// Maximum number of cgroups in one reading.
const MAX_CGROUPS: usize = 64;

/// Maximum number of subjects with known values. Beyond it, all values are recorded again.
const MAX_OWNERS: usize = 1 << 16;

/// Topic of facts with the path of a cgroup.
const CGROUP_PATH: &str = "cgroup_path";

/// Values and facts that have changed since the last reading.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Readings {
    pub(super) samples: Vec<Sample>,
    pub(super) facts: Vec<Fact>,
}

/// Sampler of memory over time.
#[derive(Debug)]
pub(super) struct MemorySampler {
    /// Hierarchy with the memory controller; `None` if none is mounted.
    groups: Option<MemoryGroups>,
    /// Last value of each counter, by subject.
    last: FxHashMap<Subject, Vec<(&'static str, u64)>>,
    /// Last process that was read, if one reading does not contain all processes.
    last_process: Option<ImageId>,
    /// Last cgroup that was read, if one reading does not contain all cgroups.
    last_cgroup: Option<PathBuf>,
}

impl MemorySampler {
    pub(super) fn start() -> Self {
        Self { groups: MemoryGroups::find(), last: FxHashMap::default(), last_process: None, last_cgroup: None }
    }

    /// Reads the values of the running `processes`, of their cgroups, of the machine and of memtrace. `own`: further
    /// values of memtrace.
    pub(super) fn read<'a>(
        &mut self,
        processes: impl Iterator<Item = (ImageId, Option<&'a Cgroup>)>,
        own: &[(&'static str, u64)],
    ) -> Readings {
        let (mut ids, mut cgroups) = (BTreeSet::new(), BTreeSet::new());
        for (id, cgroup) in processes {
            ids.insert(id);
            cgroups.extend(cgroup.map(|cgroup| PathBuf::from(&cgroup.path)));
        }
        let mut readings = Readings::default();
        self.last.retain(|subject, _| !matches!(subject, Subject::Process(id) if !ids.contains(id)));
        if self.last.len() > MAX_OWNERS {
            self.last.clear();
        }
        let (chosen, skipped_processes) = choose(&ids, &mut self.last_process, MAX_PROCESSES);
        for id in chosen {
            self.add(Subject::Process(id), &of_process(id.pid), &mut readings);
        }
        let (chosen, skipped_cgroups) = choose(&cgroups, &mut self.last_cgroup, MAX_CGROUPS);
        for path in chosen {
            let Some((id, reading)) = self.groups.as_ref().and_then(|groups| groups.usage(&path)) else { continue };
            let subject = Subject::Cgroup(id);
            if !self.last.contains_key(&subject) {
                let value = FactValue::Text(path.to_string_lossy().into_owned());
                let item = Cow::Owned(id.number().to_string());
                readings.facts.push(Fact { topic: Cow::Borrowed(CGROUP_PATH), item, value });
            }
            self.add(subject, &of_cgroup(&reading), &mut readings);
        }
        self.add(Subject::Machine, &procfs::machine_memory(), &mut readings);
        let mut values = of_process(Pid(process::id()));
        values.extend_from_slice(own);
        values.push(("skipped_processes", skipped_processes as u64));
        values.push(("skipped_cgroups", skipped_cgroups as u64));
        self.add(Subject::Memtrace, &values, &mut readings);
        readings
    }

    /// Adds the values that have changed.
    fn add(&mut self, subject: Subject, values: &[(&'static str, u64)], readings: &mut Readings) {
        let last = self.last.entry(subject).or_default();
        for &(counter, value) in values {
            match last.iter_mut().find(|(name, _)| *name == counter) {
                Some((_, known)) if *known == value => continue,
                Some((_, known)) => *known = value,
                None => last.push((counter, value)),
            }
            readings.samples.push(Sample { subject, counter: Cow::Borrowed(counter), value });
        }
    }
}

/// Returns up to `max` items after `last`. After the last item, continues with the first. Also returns the number of
/// items that were left out.
fn choose<T: Ord + Clone>(all: &BTreeSet<T>, last: &mut Option<T>, max: usize) -> (Vec<T>, usize) {
    if all.len() <= max {
        return (all.iter().cloned().collect(), 0);
    }
    let start = last.as_ref().map_or(Unbounded, Excluded);
    let chosen: Vec<T> = all.range::<T, _>((start, Unbounded)).chain(all).take(max).cloned().collect();
    *last = chosen.last().cloned();
    (chosen, all.len() - max)
}

fn of_process(pid: Pid) -> Vec<(&'static str, u64)> {
    let mut values = Vec::with_capacity(8);
    if let Ok(counted) = procfs::counted(pid) {
        values.extend([
            (MemoryCounter::RssAnonymous.name(), counted.anonymous.0),
            (MemoryCounter::RssFile.name(), counted.file.0),
            (MemoryCounter::RssShared.name(), counted.shmem.0),
            (MemoryCounter::Swap.name(), counted.swap.0),
            ("page_table_bytes", counted.page_tables.0),
        ]);
    }
    if let Some(faults) = procfs::page_faults(pid) {
        values.extend([("minor_faults", faults.minor), ("major_faults", faults.major)]);
    }
    let cpu = procfs::processor_time(pid);
    values.extend(cpu.map(|cpu| ("cpu_ns", u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX))));
    values
}

fn of_cgroup(reading: &GroupReading) -> Vec<(&'static str, u64)> {
    let mut values = Vec::with_capacity(5);
    values.extend(reading.current.map(|bytes| ("usage_bytes", bytes.0)));
    values.extend(reading.limit.map(|bytes| ("limit_bytes", bytes.0)));
    values.extend(reading.high.map(|bytes| ("high_bytes", bytes.0)));
    if let Some(pressure) = reading.pressure {
        values.push(("pressure_some_ns", pressure.some.total_ns()));
        values.extend(pressure.full.map(|full| ("pressure_full_ns", full.total_ns())));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_image() -> ImageId {
        ImageId { pid: Pid(process::id()), ordinal: 0 }
    }

    #[test]
    fn only_changed_values_are_read_again() {
        let mut sampler = MemorySampler::start();
        let own = own_image();
        let first = sampler.read([(own, None)].into_iter(), &[("recording_bytes", 7)]).samples;
        let value = |samples: &[Sample], subject, counter: &str| {
            let found = samples.iter().find(|sample| sample.subject == subject && sample.counter == counter);
            found.map(|sample| sample.value)
        };
        let process = Subject::Process(own);
        assert!(value(&first, process, "rss_anon_bytes") > Some(0));
        assert!(value(&first, process, "cpu_ns") > Some(0));
        assert!(value(&first, Subject::Machine, "meminfo.MemTotal_bytes") > Some(0));
        assert_eq!(value(&first, Subject::Memtrace, "recording_bytes"), Some(7));
        assert_eq!(value(&first, Subject::Memtrace, "skipped_processes"), Some(0));
        let second = sampler.read([(own, None)].into_iter(), &[("recording_bytes", 8)]).samples;
        assert_eq!(value(&second, Subject::Memtrace, "recording_bytes"), Some(8));
        assert_eq!(value(&second, Subject::Machine, "meminfo.MemTotal_bytes"), None, "it has not changed");
        assert_eq!(value(&second, Subject::Memtrace, "skipped_processes"), None);
        // The values of a process that no longer runs are forgotten.
        sampler.read([].into_iter(), &[]);
        assert!(!sampler.last.contains_key(&process));
    }

    #[test]
    fn items_take_turns() {
        let all: BTreeSet<u32> = (0..5).collect();
        let mut last = None;
        let turns: Vec<_> = (0..4).map(|_| choose(&all, &mut last, 2)).collect();
        assert_eq!(turns, [(vec![0, 1], 3), (vec![2, 3], 3), (vec![4, 0], 3), (vec![1, 2], 3)]);
        assert_eq!(choose(&all, &mut last, 5), ((0..5).collect(), 0));
    }
}
