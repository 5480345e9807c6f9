//! Samples for the monitor, made from a reading of the counters.

use std::collections::BTreeMap;

use memtrace_history::threads::{ProcessSample, Sampling, ThreadSample};
use memtrace_host::kernel::{ExitCounters, ProcessStart, ThreadExit};
use memtrace_model::{
    Comm, CounterSource, Losses, Pid, ProcessValues, SourceState, TaskState, ThreadUsage, UsageCounter,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::reading::Reading;

/// A process is forgotten after this number of consecutive readings without running or exited threads. While its last thread
/// exits, a process has neither for a moment.
const MISSING_READINGS: u32 = 2;

/// State of a process in the last readings.
#[derive(Default)]
struct KnownProcess {
    comm: Comm,
    values: ProcessValues,
    source: SourceState,
    /// Number of consecutive readings without the process.
    missing: u32,
}

/// The processes of the last readings.
#[derive(Default)]
pub(super) struct KnownProcesses(BTreeMap<ProcessStart, KnownProcess>);

impl KnownProcesses {
    /// Returns the samples of a reading. `source` returns the origin of the heap counters of a process.
    pub(super) fn sampling(
        &mut self,
        reading: Reading,
        losses: Losses,
        mut source: impl FnMut(Pid) -> SourceState,
    ) -> Sampling {
        let Reading { at, boot_ns, stale, without_heap, threads, turnover, exits, values, machine, .. } = reading;
        for known in self.0.values_mut() {
            known.missing += 1;
        }
        for thread in &threads {
            let is_new = !self.0.contains_key(&(thread.thread.pid, thread.process_start_ns));
            let known = self.0.entry((thread.thread.pid, thread.process_start_ns)).or_default();
            // The main thread has the name of the process. It may have exited before the others.
            if is_new || thread.thread.tid.0 == thread.thread.pid.0 {
                known.comm = thread.comm.clone();
            }
        }
        for (process, values) in values {
            self.0.entry(process).or_default().values = values;
            self.0.entry(process).or_default().missing = 0;
        }
        let mut exits_of: FxHashMap<ProcessStart, Vec<ThreadSample>> = FxHashMap::default();
        for exit in exits {
            let process = (exit.thread.pid, exit.process_start_ns);
            exits_of.entry(process).or_default().push(last_sample(exit));
        }
        for (process, changes) in &turnover {
            let known = self.0.entry(*process).or_default();
            known.missing = 0;
            if let Some(comm) = &changes.comm {
                known.comm.clone_from(comm);
            }
        }
        self.0.retain(|_, known| known.missing < MISSING_READINGS);
        let counted = threads.iter().filter(|thread| has_heap(&thread.usage));
        let counted = counted.map(|thread| (thread.thread.pid, thread.process_start_ns));
        let exited = turnover.iter().filter(|(_, changes)| has_heap(&changes.ended)).map(|(process, _)| *process);
        let counted: FxHashSet<ProcessStart> = counted.chain(exited).collect();
        for (process, known) in &mut self.0 {
            // A process that has exited has no known allocator any more, but its counters prove that it had one.
            match source(process.0) {
                found if found.source != CounterSource::None => known.source = found,
                _ if counted.contains(process) => {
                    known.source = SourceState { source: CounterSource::Bpf, is_stale: false }
                }
                _ => {}
            }
        }
        let sample = |(&(pid, start_ns), known): (&ProcessStart, &KnownProcess)| {
            let changes = turnover.get(&(pid, start_ns)).cloned().unwrap_or_default();
            ProcessSample {
                pid,
                start_ns,
                comm: known.comm.clone(),
                source: SourceState { is_stale: stale.contains(&pid), ..known.source },
                ended: changes.ended,
                started: changes.started,
                exited: changes.exited,
                values: known.values,
                exits: exits_of.remove(&(pid, start_ns)).unwrap_or_default(),
                has_exited: changes.has_exited,
                oom_killed: changes.oom_killed,
            }
        };
        let processes: Vec<_> = self.0.iter().map(sample).collect();
        self.0.retain(|process, _| turnover.get(process).is_none_or(|changes| !changes.has_exited));
        let threads = threads.into_iter().map(|thread| ThreadSample {
            thread: thread.thread,
            comm: thread.comm,
            state: thread.state,
            usage: thread.usage,
            has_heap: !stale.contains(&thread.thread.pid) && !without_heap.contains(&thread.thread),
        });
        Sampling { at, boot_ns, threads: threads.collect(), processes, machine, losses }
    }
}

/// Returns the last sample of a thread.
fn last_sample(exit: ThreadExit) -> ThreadSample {
    let ThreadExit { thread, comm, usage, counters, .. } = exit;
    ThreadSample { thread, comm, state: TaskState::Dead, usage, has_heap: counters != ExitCounters::Unreadable }
}

fn has_heap(usage: &ThreadUsage) -> bool {
    usage.get(UsageCounter::AllocCount) > 0 || usage.get(UsageCounter::FreeCount) > 0
}

#[cfg(test)]
mod tests {
    use memtrace_host::kernel::{RunningThread, ThreadTurnover};
    use memtrace_model::{ThreadIdentity, Tid};

    use super::*;

    fn reading(threads: &[u32], turnover: Option<ThreadTurnover>) -> Reading {
        let thread = |&tid: &u32| RunningThread {
            thread: ThreadIdentity { pid: Pid(7), tid: Tid(tid), start_ns: 5 },
            process_start_ns: 5,
            comm: Comm::from(format!("thread {tid}")),
            state: TaskState::Running,
            thread_pointer: 0,
            usage: ThreadUsage::default(),
        };
        let process = (Pid(7), 5);
        let values = (!threads.is_empty()).then(|| (process, ProcessValues::default()));
        Reading {
            threads: threads.iter().map(thread).collect(),
            turnover: turnover.map(|turnover| (process, turnover)).into_iter().collect(),
            values: values.into_iter().collect(),
            ..Reading::default()
        }
    }

    fn processes(known: &mut KnownProcesses, reading: Reading) -> Vec<(String, bool)> {
        let sampling = known.sampling(reading, Losses::default(), |_| SourceState::default());
        sampling.processes.iter().map(|process| (process.comm.raw().to_owned(), process.has_exited)).collect()
    }

    #[test]
    fn process_has_the_name_of_its_first_thread() {
        let mut known = KnownProcesses::default();
        assert_eq!(processes(&mut known, reading(&[9, 7], None)), [(String::from("thread 7"), false)]);
        assert_eq!(processes(&mut known, reading(&[9], None)), [(String::from("thread 7"), false)]);
    }

    #[test]
    fn exiting_process_remains_until_its_exit_is_read() {
        let mut known = KnownProcesses::default();
        assert_eq!(processes(&mut known, reading(&[7], None)).len(), 1);
        assert_eq!(processes(&mut known, reading(&[], None)).len(), 1);
        let exited = ThreadTurnover { has_exited: true, ..ThreadTurnover::default() };
        assert_eq!(processes(&mut known, reading(&[], Some(exited))), [(String::from("thread 7"), true)]);
        assert_eq!(processes(&mut known, reading(&[], None)), []);
    }

    #[test]
    fn exits_belong_to_their_process() {
        let exit = |start_ns, process_start_ns, counters| ThreadExit {
            thread: ThreadIdentity { pid: Pid(7), tid: Tid(7), start_ns },
            process_start_ns,
            comm: Comm::from("a"),
            usage: ThreadUsage::default(),
            counters,
        };
        let mut known = KnownProcesses::default();
        // The second process has the pid of the first.
        let exits = vec![exit(5, 5, ExitCounters::Read), exit(9, 9, ExitCounters::Unreadable)];
        let mut reading = Reading { exits, ..reading(&[7], Some(ThreadTurnover::default())) };
        reading.turnover.insert((Pid(7), 9), ThreadTurnover::default());
        let sampling = known.sampling(reading, Losses::default(), |_| SourceState::default());
        let exits = |process: &ProcessSample| {
            process.exits.iter().map(|exit| (exit.thread.start_ns, exit.has_heap)).collect::<Vec<_>>()
        };
        let exits: Vec<_> = sampling.processes.iter().map(|process| (process.start_ns, exits(process))).collect();
        assert_eq!(exits, [(5, vec![(5, true)]), (9, vec![(9, false)])]);
        let mut exits = sampling.processes.iter().flat_map(|process| &process.exits);
        assert!(exits.all(|exit| exit.state == TaskState::Dead));
    }

    #[test]
    fn process_without_any_sign_is_forgotten() {
        let mut known = KnownProcesses::default();
        assert_eq!(processes(&mut known, reading(&[7], None)).len(), 1);
        assert_eq!(processes(&mut known, reading(&[], None)).len(), 1);
        assert_eq!(processes(&mut known, reading(&[], None)), []);
    }
}
