//! Usage of threads and processes in intervals, from cumulative counters. Pure.
//!
//! The first [`Sampling`] is the baseline. Each further sampling ends an interval. The usage of a process is the
//! growth of the sum over its running and ended threads, so the intervals of a process sum up to its counters,
//! whatever happens to single threads.
//!
//! Threads have rows of their own up to a limit. The monitor keeps the state of a thread only if it has a row. A thread
//! that has exited has a last row, if its exit was read and a slot is free.

mod process;
mod rows;
mod sampling;
#[cfg(test)]
mod tests;

pub use sampling::{ProcessSample, Sampling, ThreadSample};

use std::time::Duration;

use memtrace_model::{Losses, MachineUsage, Pid, ProcessInterval, ThreadsEvent, ThreadsEventKind, ThreadsInterval};
use rustc_hash::{FxHashMap, FxHashSet};

use process::ProcessState;
use rows::{Origin, Slots};

/// Converts cumulative counters to intervals.
#[derive(Debug)]
pub struct IntervalBuilder {
    slots: Slots,
    processes: FxHashMap<(Pid, u64), ProcessState>,
    /// `None` before the baseline.
    previous: Option<Previous>,
    /// Time of the baseline since boot, in nanoseconds.
    baseline_ns: u64,
}

/// Values of the previous sampling that do not belong to processes.
#[derive(Debug)]
struct Previous {
    at: Duration,
    boot_ns: u64,
    machine: MachineUsage,
    losses: Losses,
}

impl IntervalBuilder {
    /// Creates a monitor. `limit_of_threads`: maximum number of rows in an interval.
    #[must_use]
    pub fn new(limit_of_threads: usize) -> Self {
        Self { slots: Slots::new(limit_of_threads), processes: FxHashMap::default(), previous: None, baseline_ns: 0 }
    }

    /// Returns the interval that ends at a sampling; `None` for the first sampling, which is the baseline.
    pub fn observe(&mut self, sampling: Sampling) -> Option<ThreadsInterval> {
        let Sampling { at, boot_ns, threads, mut processes, machine, losses } = sampling;
        self.slots.begin_interval();
        self.drop_absent(&processes);
        processes.sort_by_key(|process| (process.pid, process.start_ns));
        let mut threads = by_process(threads);
        let previous = self.previous.replace(Previous { at, boot_ns, machine, losses: losses.clone() });
        let Some(previous) = previous else {
            self.baseline_ns = boot_ns;
            self.set_baseline(&processes, &threads);
            return None;
        };
        let mut interval = ThreadsInterval {
            span: previous.at..at.max(previous.at),
            machine: machine.since(&previous.machine),
            losses: losses.since(&previous.losses),
            ..ThreadsInterval::default()
        };
        for process in processes {
            // A new process can have the pid of a process that has exited.
            let own = if process.has_exited { None } else { threads.remove(&process.pid) };
            let kinds = self.new_events(&process);
            interval.events.extend(kinds.map(|kind| ThreadsEvent { at: interval.span.end, kind }));
            interval.processes.push(self.process_interval(process, own.unwrap_or_default(), previous.boot_ns));
        }
        Some(interval)
    }

    fn drop_absent(&mut self, processes: &[ProcessSample]) {
        let present: FxHashSet<_> = processes.iter().map(|process| (process.pid, process.start_ns)).collect();
        for (_, state) in self.processes.extract_if(|key, _| !present.contains(key)) {
            self.slots.give_back(state.rows());
        }
    }

    fn set_baseline(&mut self, processes: &[ProcessSample], threads: &FxHashMap<Pid, Vec<ThreadSample>>) {
        for process in processes.iter().filter(|process| !process.has_exited) {
            let own = threads.get(&process.pid).map_or(&[][..], Vec::as_slice);
            let state = ProcessState::new(Origin::Baseline, process, own, &mut self.slots);
            self.processes.insert((process.pid, process.start_ns), state);
        }
    }

    /// Returns the events of a process since the previous sampling.
    fn new_events(&self, process: &ProcessSample) -> impl Iterator<Item = ThreadsEventKind> + use<> {
        let state = self.processes.get(&(process.pid, process.start_ns));
        let was_killed = state.is_some_and(ProcessState::was_oom_killed);
        let kill = (process.oom_killed && !was_killed).then_some(ThreadsEventKind::OomKill(process.pid));
        let exit = process.has_exited.then_some(ThreadsEventKind::Exit(process.pid));
        kill.into_iter().chain(exit)
    }

    fn process_interval(
        &mut self,
        process: ProcessSample,
        threads: Vec<ThreadSample>,
        previous_ns: u64,
    ) -> ProcessInterval {
        let key = (process.pid, process.start_ns);
        let has_exited = process.has_exited;
        let origin = if process.start_ns >= self.baseline_ns { Origin::Later } else { Origin::Earlier };
        let slots = &mut self.slots;
        let state = self.processes.entry(key).or_insert_with(|| ProcessState::new(origin, &process, &threads, slots));
        let interval = state.observe(process, threads, previous_ns, slots);
        if has_exited {
            self.processes.remove(&key);
        }
        interval
    }
}

fn by_process(threads: Vec<ThreadSample>) -> FxHashMap<Pid, Vec<ThreadSample>> {
    let mut by_process = FxHashMap::<_, Vec<_>>::default();
    for thread in threads {
        by_process.entry(thread.thread.pid).or_default().push(thread);
    }
    by_process
}
