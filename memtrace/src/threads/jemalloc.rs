//! Counters of jemalloc in the monitored processes. The BPF programs read them at the exit of a thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use memtrace_host::kernel::{ExitCounters, ProcessStart, RunningThread, ThreadExit};
use memtrace_host::procfs::RemoteCounters;
use memtrace_model::{AbsAddr, Mapping, Pid, ThreadIdentity, ThreadUsage, UsageCounter};
use memtrace_object::allocators::{JemallocCounters, address_in};
use rustc_hash::{FxHashMap, FxHashSet};

use super::reading::Reading;

/// Time limit for reading the counters of all processes.
const DEADLINE: Duration = Duration::from_millis(50);

/// Time limit for the first reading. Without this reading, the first interval has no counters.
const FIRST_DEADLINE: Duration = Duration::from_secs(1);

/// Counters of jemalloc in a process.
struct JemallocProcess {
    counters: JemallocCounters,
    /// Offset of a thread's jemalloc state from the thread pointer, in bytes.
    tp_offset: i64,
    remote: RemoteCounters,
    /// Thread and counter at each address of the last request that was sent.
    places: FxHashMap<AbsAddr, (ThreadIdentity, UsageCounter)>,
    /// Threads that run now. A late read can contain values of threads that have ended since.
    live: FxHashSet<ThreadIdentity>,
    /// Counters of the running threads, as they were last read.
    running: FxHashMap<ThreadIdentity, ThreadUsage>,
    /// Threads of `running` that were missing in the last reading. Their exits are expected before the next reading.
    missing: FxHashSet<ThreadIdentity>,
    /// For exited threads with counters that the BPF programs could not read: sum of the counters from the last reading of each
    /// thread. The BPF programs sum up the counters of the other exited threads.
    ended: ThreadUsage,
    /// True after the first reading, even if it failed.
    was_read: bool,
}

/// Reader of the counters of jemalloc.
#[derive(Default)]
pub(super) struct JemallocReader {
    processes: FxHashMap<Pid, JemallocProcess>,
    /// Number of threads that exited before the BPF programs could read their counters, by process.
    unreadable: BTreeMap<Pid, u64>,
}

impl JemallocReader {
    /// Adds a process. `mapping`: a mapping of the object with jemalloc. `file`: this object.
    ///
    /// # Errors
    ///
    /// The reason why the counters cannot be located.
    pub(super) fn add(&mut self, pid: Pid, mapping: &Mapping, file: &File) -> Result<(), String> {
        let counters = JemallocCounters::find(file).map_err(|error| error.to_string())?;
        let content = match counters.location.slot() {
            None => 0,
            Some(slot) => {
                let address = address_in(mapping, file, slot).ok_or("the object is mapped in an unknown way")?;
                read_word(pid, address).map_err(|error| error.to_string())?
            }
        };
        let tp_offset =
            counters.location.resolve(content).ok_or("the dynamic linker has not stored the distance yet")?;
        let remote = RemoteCounters::start(pid).map_err(|error| error.to_string())?;
        let process = JemallocProcess {
            counters,
            tp_offset,
            remote,
            places: FxHashMap::default(),
            live: FxHashSet::default(),
            running: FxHashMap::default(),
            missing: FxHashSet::default(),
            ended: ThreadUsage::default(),
            was_read: false,
        };
        self.processes.insert(pid, process);
        Ok(())
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        self.processes.keys().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Returns, for each process, the distances of two counters from the thread pointer, in bytes: the counters of allocated
    /// bytes and of freed bytes.
    pub(super) fn distances(&self) -> impl Iterator<Item = (Pid, [i64; 2])> + '_ {
        self.processes.iter().map(|(pid, process)| {
            let addresses = process.counters.addresses(0, process.tp_offset);
            (*pid, addresses.map(|AbsAddr(address)| address.cast_signed()))
        })
    }

    /// Removes a thread that has exited. If the BPF programs could not read its counters, uses the counters of the last
    /// reading.
    pub(super) fn end_thread(&mut self, exit: &mut ThreadExit) {
        let Some(process) = self.processes.get_mut(&exit.thread.pid) else { return };
        let last = process.running.remove(&exit.thread);
        if exit.counters == ExitCounters::Read {
            return;
        }
        if exit.counters == ExitCounters::Unreadable {
            *self.unreadable.entry(exit.thread.pid).or_default() += 1;
        }
        if let Some(last) = last {
            process.ended = process.ended.plus(last);
            exit.usage = exit.usage.plus(last);
            exit.counters = ExitCounters::Read;
        }
    }

    /// Adds the counters to a reading.
    pub(super) fn read(&mut self, reading: &mut Reading) {
        for (pid, process) in &mut self.processes {
            process.request(reading.threads.iter().filter(|thread| thread.thread.pid == *pid));
        }
        let is_first = self.processes.values().any(|process| !process.was_read);
        let deadline = Instant::now() + if is_first { FIRST_DEADLINE } else { DEADLINE };
        for (pid, process) in &mut self.processes {
            if process.wait(deadline, &mut reading.without_heap) {
                reading.stale.insert(*pid);
            }
            let mut start: Option<ProcessStart> = None;
            for thread in reading.threads.iter_mut().filter(|thread| thread.thread.pid == *pid) {
                start = Some((*pid, thread.process_start_ns));
                if let Some(usage) = process.running.get(&thread.thread) {
                    thread.usage = thread.usage.plus(*usage);
                }
            }
            let exited = reading.turnover.iter().find(|((of, _), changes)| of == pid && changes.has_exited);
            if let Some((&process_start, _)) = exited {
                process.running.clear();
                start = Some(process_start);
            }
            if let Some(start) = start {
                let changes = reading.turnover.entry(start).or_default();
                changes.ended = changes.ended.plus(process.ended);
            }
        }
        reading.unreadable.clone_from(&self.unreadable);
    }
}

impl JemallocProcess {
    /// Requests a read of the counters of the running threads.
    fn request<'a>(&mut self, threads: impl Iterator<Item = &'a RunningThread>) {
        let mut places = FxHashMap::default();
        self.live.clear();
        for thread in threads {
            self.live.insert(thread.thread);
            let [allocated, freed] = self.counters.addresses(thread.thread_pointer, self.tp_offset);
            places.insert(allocated, (thread.thread, UsageCounter::AllocBytes));
            places.insert(freed, (thread.thread, UsageCounter::FreeBytes));
        }
        self.forget_missing();
        // If an earlier read has not returned, `places` must keep the places of that read, which can belong to other threads.
        if self.remote.request(places.keys().copied()) {
            self.places = places;
        }
    }

    /// Waits for the counters. Returns true if the values are from an earlier read, or if the read has failed. Adds threads
    /// with unreadable counters to `unreadable`.
    fn wait(&mut self, deadline: Instant, unreadable: &mut FxHashSet<ThreadIdentity>) -> bool {
        self.was_read = true;
        let reading = self.remote.wait(deadline);
        // An earlier call has stored the values of the earlier read.
        if reading.is_stale {
            return true;
        }
        let of_live = |place| self.places.get(&place).filter(|(thread, _)| self.live.contains(thread));
        for (place, value) in reading.values() {
            match (of_live(place), value) {
                (Some((thread, counter)), Some(value)) => {
                    self.running.entry(*thread).or_default().set(*counter, value);
                }
                (Some((thread, _)), None) => _ = unreadable.insert(*thread),
                (None, _) => {}
            }
        }
        reading.error.is_some()
    }

    /// Forgets the threads that were missing in two consecutive readings. Their exits were lost, but the sum of the BPF
    /// programs contains their counters.
    fn forget_missing(&mut self) {
        let Self { live, running, missing, .. } = self;
        let before = std::mem::take(missing);
        running.retain(|thread, _| {
            let is_live = live.contains(thread);
            let is_kept = is_live || !before.contains(thread);
            if is_kept && !is_live {
                missing.insert(*thread);
            }
            is_kept
        });
    }
}

/// Reads a word from the memory of a process.
fn read_word(pid: Pid, address: AbsAddr) -> io::Result<u64> {
    let mut remote = RemoteCounters::start(pid)?;
    remote.request([address]);
    let reading = remote.wait(Instant::now() + Duration::from_secs(1));
    let value = reading.values().next().and_then(|(_, value)| value);
    value.ok_or_else(|| io::Error::other("the memory of the process cannot be read"))
}
