//! Reader of the usage of threads that BPF programs count.

use aya::maps::{HashMap, MapData, MapError};
use memtrace_common::wire::{
    COUNTERS_READ, COUNTERS_UNREADABLE, PROCESS_EXITED, PROCESS_OOM_KILLED, ProcessKey, ProcessUsage, ThreadRecord,
};
use memtrace_model::{Comm, Pid, TaskState, ThreadIdentity, ThreadUsage, Tid, UsageCounter};

use super::bpf::Bpf;
use super::decode::comm;
use super::error::KernelError;
use super::mapped_ring::MappedRing;
use super::task_iterator::TaskIterator;
use super::wire_type::{MapEntry, read};
use crate::procfs;

/// BPF program of the iterator over tasks.
const PROGRAM: &str = "thread_usage";

/// Programs that count starts and exits of threads, with their tracepoints.
pub(super) const TRACEPOINTS: [(&str, &str); 2] =
    [("count_thread_start", "sched_process_fork"), ("count_thread_exit", "sched_process_exit")];

/// Programs that read the counters of an allocator in the memory of a process before a thread exits, with their tracepoints.
/// They are needed on kernels that free the memory before the tracepoint of the exit.
const BEFORE_EXIT: [(&str, &str); 2] = [("count_exit_call", "sys_enter"), ("count_fatal_signal", "signal_deliver")];

/// Usage of a running thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningThread {
    /// Thread with its process.
    pub thread: ThreadIdentity,
    /// Start time of the thread's process since boot, in nanoseconds.
    pub process_start_ns: u64,
    /// Comm of the thread.
    pub comm: Comm,
    /// State of the thread.
    pub state: TaskState,
    /// Address in the thread pointer register; 0 if it is not known.
    pub thread_pointer: u64,
    /// Counters since the start of the thread. The heap counters begin when the probes are attached.
    pub usage: ThreadUsage,
}

/// A thread that has exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadExit {
    /// Thread with its process.
    pub thread: ThreadIdentity,
    /// Start time of the thread's process since boot, in nanoseconds.
    pub process_start_ns: u64,
    /// Comm of the thread.
    pub comm: Comm,
    /// Counters since the start of the thread. The counters of probes begin when the probes are attached.
    pub usage: ThreadUsage,
    /// State of the allocator's own counters, which [`Kernel::read_counters_at_exit`] describes.
    ///
    /// [`Kernel::read_counters_at_exit`]: super::Kernel::read_counters_at_exit
    pub counters: ExitCounters,
}

/// State of the allocator's own counters at the exit of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCounters {
    /// The BPF programs do not read counters of the process.
    None,
    /// The usage of the thread, and the sum of the exited threads, contain the counters.
    Read,
    /// The counters could not be read. [`LossReason::CountersUnreadable`] counts the exit.
    ///
    /// [`LossReason::CountersUnreadable`]: memtrace_model::LossReason::CountersUnreadable
    Unreadable,
}

/// Threads of a process that have started or exited since the probes were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTurnover {
    /// Sum of the counters of exited threads.
    pub ended: ThreadUsage,
    /// Number of threads that have started.
    pub started: u64,
    /// Number of threads that have exited.
    pub exited: u64,
    /// True if the process has exited: the sum and the numbers contain all its threads.
    pub has_exited: bool,
    /// True if the process has no live threads any more, but some of them may not be counted yet.
    pub is_ending: bool,
    /// True if the OOM killer has selected the process.
    pub oom_killed: bool,
    /// Comm of the process, if it is ending or has exited.
    pub comm: Option<Comm>,
}

/// Identity of a process: its pid, and its start time since boot in nanoseconds.
pub type ProcessStart = (Pid, u64);

/// Reader of the usage of threads. A read does not wait for any thread.
pub struct ThreadUsageReader {
    iterator: TaskIterator,
    processes: HashMap<MapData, MapEntry<ProcessKey>, MapEntry<ProcessUsage>>,
    exits: MappedRing,
    buffer: Box<[u8]>,
}

/// Maximum number of bytes of a read: a seq file buffers eight pages (`bpf_seq_read`, kernel/bpf/bpf_iter.c).
const BUFFER: usize = 8 << 12;

impl ThreadUsageReader {
    /// Loads the iterator, and takes the maps out of `bpf`.
    pub(super) fn take(bpf: &mut Bpf) -> Result<Self, KernelError> {
        let iterator = TaskIterator::load(bpf, PROGRAM)?;
        let processes = bpf.take_map("PROCESS_USAGE")?.try_into();
        let processes =
            processes.map_err(|error: MapError| KernelError::from_error("count the usage of threads", &error))?;
        let exits = bpf.take_ring("THREAD_EXITS", "read the exits of threads")?;
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Ok(Self { iterator, processes, exits, buffer })
    }

    /// Calls `visit` for each running thread of the traced processes that `selects` accepts. If the process filter has
    /// conditions, `selects` is called for the threads of all processes.
    ///
    /// # Errors
    ///
    /// Errors of the iterator, such as a lack of memory.
    pub fn running(
        &mut self,
        mut selects: impl FnMut(ProcessStart) -> bool,
        mut visit: impl FnMut(RunningThread),
    ) -> std::io::Result<()> {
        self.iterator.for_each(&mut self.buffer, |record: ThreadRecord| {
            let thread = running(&record);
            // A thread that has exited during the read is left out: the sums of its process will contain its counters.
            if thread.state != TaskState::Dead && selects((Pid(record.pid), record.process_start_ns)) {
                visit(thread);
            }
        })
    }

    /// Returns the processes with threads that have started or exited.
    pub fn turnover(&self) -> impl Iterator<Item = (ProcessStart, ThreadTurnover)> {
        let entries = self.processes.iter().filter_map(Result::ok);
        entries.map(move |(MapEntry(key), MapEntry(usage))| ((pid(key), key.start_ns), self.turnover_of(key, usage)))
    }

    /// Returns the turnover of a process. `usage`: entry of the process in the map.
    fn turnover_of(&self, key: ProcessKey, usage: ProcessUsage) -> ThreadTurnover {
        if usage.flags & PROCESS_EXITED == 0 {
            return turnover(&usage);
        }
        // The thread that sets the flag can overtake other threads of its process (`signal->live`, `do_exit`,
        // kernel/exit.c). If the process were forgotten now, the exits of these threads would be lost.
        if procfs::has_threads(pid(key), key.start_ns) {
            return ThreadTurnover { has_exited: false, is_ending: true, ..turnover(&usage) };
        }
        // A thread may have been counted since `usage` was read. From now on, the entry does not change.
        let last = self.processes.get(&MapEntry(key), 0).map_or(usage, |MapEntry(last)| last);
        turnover(&last)
    }

    /// Calls `visit` for each thread that has exited since the last call, in the order of the exits. Exits that count as
    /// [`LossReason::ThreadExitsFull`] are left out. A later call of [`Self::turnover`] includes all of these exits.
    ///
    /// [`LossReason::ThreadExitsFull`]: memtrace_model::LossReason::ThreadExitsFull
    pub fn exits(&mut self, mut visit: impl FnMut(ThreadExit)) {
        while let Some(record) = self.exits.next_record() {
            if let Some(record) = read::<ThreadRecord>(&record) {
                visit(exit(&record));
            }
        }
    }

    /// Forgets a process that has exited, according to [`ThreadTurnover::has_exited`].
    pub fn forget(&mut self, (pid, start_ns): ProcessStart) {
        let key = ProcessKey { pid: pid.0.into(), start_ns };
        if let Err(error) = self.processes.remove(&MapEntry(key)) {
            log::debug!("the counters of process {pid} are not removed: {error}");
        }
    }
}

fn pid(key: ProcessKey) -> Pid {
    Pid(u32::try_from(key.pid).unwrap_or(0))
}

/// Lets the BPF programs read counters of the allocator in the memory of process `pid` at the exit of each thread. `distances`:
/// offsets of the counter of allocated bytes, and of the counter of freed bytes, from the thread pointer, in bytes.
pub(super) fn read_at_exit(bpf: &mut Bpf, pid: Pid, distances: [i64; 2]) -> Result<(), KernelError> {
    let failed = |error: MapError| KernelError::from_error("read the counters of an allocator", &error);
    let map = bpf.map_mut("ALLOCATOR_COUNTERS")?;
    let mut processes: HashMap<&mut MapData, u32, [i64; 2]> = map.try_into().map_err(failed)?;
    processes.insert(pid.0, distances, 0).map_err(failed)
}

/// Attaches the programs that read the counters of an allocator while the process has its memory. Without these programs, each
/// exit counts as a loss.
pub(super) fn attach_before_exit(bpf: &mut Bpf) {
    for (program, tracepoint) in BEFORE_EXIT {
        if let Err(error) = bpf.attach_tracepoint(program, tracepoint) {
            log::info!("the counters of allocators cannot be read at exits: {error}");
        }
    }
}

fn identity(record: &ThreadRecord) -> ThreadIdentity {
    ThreadIdentity { pid: Pid(record.pid), tid: Tid(record.tid), start_ns: record.start_ns }
}

fn exit(record: &ThreadRecord) -> ThreadExit {
    ThreadExit {
        thread: identity(record),
        process_start_ns: record.process_start_ns,
        comm: Comm::from(comm(&record.comm)),
        usage: usage(&record.usage),
        counters: match record.flags {
            flags if flags & COUNTERS_READ != 0 => ExitCounters::Read,
            flags if flags & COUNTERS_UNREADABLE != 0 => ExitCounters::Unreadable,
            _ => ExitCounters::None,
        },
    }
}

fn running(record: &ThreadRecord) -> RunningThread {
    RunningThread {
        thread: identity(record),
        process_start_ns: record.process_start_ns,
        comm: Comm::from(comm(&record.comm)),
        state: TaskState::of_bits(record.state),
        thread_pointer: record.thread_pointer,
        usage: usage(&record.usage),
    }
}

/// Converts the counters, which have the order of [`UsageCounter`].
fn usage(counters: &[u64; UsageCounter::COUNT]) -> ThreadUsage {
    let mut usage = ThreadUsage::default();
    for (counter, &value) in UsageCounter::ALL.into_iter().zip(counters) {
        usage.set(counter, value);
    }
    usage
}

fn turnover(process: &ProcessUsage) -> ThreadTurnover {
    let has_exited = process.flags & PROCESS_EXITED != 0;
    ThreadTurnover {
        ended: usage(&process.ended),
        started: process.started,
        exited: process.exited,
        has_exited,
        is_ending: false,
        oom_killed: process.flags & PROCESS_OOM_KILLED != 0,
        comm: has_exited.then(|| Comm::from(comm(&process.comm))),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use memtrace_common::wire::{COMM, usage as index};

    use super::*;
    use crate::kernel::{Kernel, Options, ProcessFilter};

    #[test]
    fn privileged_thread_that_the_last_one_overtakes_is_counted() {
        let options = Options { filter: ProcessFilter::Listed, counts_threads: true, ..Options::default() };
        let (mut kernel, _readers) = Kernel::load(&options).unwrap();
        let mut reader = kernel.take_thread_usage().unwrap();
        kernel.count_threads().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let target = Pid(child.id());
        kernel.follow(target).unwrap();
        let mut threads = Vec::new();
        reader.running(|(pid, _)| pid == target, |thread| threads.push(thread)).unwrap();
        let [RunningThread { thread, process_start_ns: start_ns, .. }] = threads[..] else {
            panic!("one thread, not {threads:?}")
        };
        // The programs leave this state behind if the only thread of the child is overtaken at its exit by another
        // thread, the last one in the kernel's count.
        let key = ProcessKey { pid: target.0.into(), start_ns };
        let (ended, comm) = ([0; index::COUNT], [0; COMM]);
        let usage = ProcessUsage { ended, started: 1, exited: 1, flags: PROCESS_EXITED, comm };
        reader.processes.insert(MapEntry(key), MapEntry(usage), 0).unwrap();
        kernel.unfollow(target).unwrap();
        let counts = |reader: &ThreadUsageReader| {
            let (_, turnover) = reader.turnover().find(|(process, _)| *process == (target, start_ns)).unwrap();
            (turnover.exited, turnover.is_ending, turnover.has_exited)
        };
        assert_eq!(counts(&reader), (1, true, false));
        drop(child.stdin.take());
        child.wait().unwrap();
        let mut exits = Vec::new();
        reader.exits(|exit| exits.push(exit.thread));
        assert_eq!(exits, [thread]);
        assert_eq!(counts(&reader), (2, false, true));
    }

    #[test]
    fn counters_have_the_order_of_the_wire_format() {
        let order = [
            (index::ALLOC_BYTES, UsageCounter::AllocBytes),
            (index::ALLOC_COUNT, UsageCounter::AllocCount),
            (index::FREE_BYTES, UsageCounter::FreeBytes),
            (index::FREE_COUNT, UsageCounter::FreeCount),
            (index::USER_TIME, UsageCounter::UserTime),
            (index::SYSTEM_TIME, UsageCounter::SystemTime),
            (index::RUN_DELAY, UsageCounter::RunDelay),
            (index::VOLUNTARY_SWITCHES, UsageCounter::VoluntarySwitches),
            (index::INVOLUNTARY_SWITCHES, UsageCounter::InvoluntarySwitches),
            (index::READ_BYTES, UsageCounter::ReadBytes),
            (index::WRITE_BYTES, UsageCounter::WriteBytes),
            (index::MINOR_FAULTS, UsageCounter::MinorFaults),
            (index::MAJOR_FAULTS, UsageCounter::MajorFaults),
        ];
        assert!(order.iter().all(|&(place, counter)| place == counter as usize), "{order:?}");
        assert_eq!(order.len(), UsageCounter::COUNT);
    }

    #[test]
    fn flags_have_the_state_of_the_allocators_counters() {
        let (comm, usage) = ([0; COMM], [0; index::COUNT]);
        let exit = |flags| {
            let (pid, tid, start_ns) = (7, 8, 9);
            let (process_start_ns, thread_pointer, state) = (5, 0, 0);
            exit(&ThreadRecord { pid, tid, start_ns, process_start_ns, thread_pointer, state, flags, comm, usage })
        };
        let counters = [0, COUNTERS_READ, COUNTERS_UNREADABLE].map(|flags| exit(flags).counters);
        assert_eq!(counters, [ExitCounters::None, ExitCounters::Read, ExitCounters::Unreadable]);
        assert_eq!(exit(0).thread, ThreadIdentity { pid: Pid(7), tid: Tid(8), start_ns: 9 });
    }
}
