//! Perf events about executable mappings, exec, comm, fork and exit.
//!
//! A command that lives for milliseconds exits before `/proc/PID/maps` can be read. perf writes a record for each
//! executable mapping, exec, fork and exit to one ring per CPU. Nothing is sampled: a process without such events costs
//! nothing.

mod open;
mod pid_table;
mod record;
mod ring;

use std::io;

use memtrace_model::Pid;

use pid_table::PidTable;
use record::Record;
use ring::Ring;

pub use record::{FileIdentity, MmapEvent, MmapEventKind};

/// Largest useful size of the ring of one CPU, in bytes. A record takes about 150 bytes, so the ring has room for 3,500
/// mappings between two drains: as many as a hundred short commands make. `perf_event_mlock_kb` does not limit root
/// (`perf_mmap`, kernel/events/core.c).
pub const LARGEST_RING: usize = 512 * 1024;

/// Reader of the events of all processes. It delivers the events of followed processes.
#[derive(Debug)]
pub struct MmapEvents {
    rings: Vec<Ring>,
    queue: Queue,
}

impl MmapEvents {
    /// Opens one perf event for each of the CPUs `cpus`, with a ring of `ring_bytes` bytes, a power of two. No process
    /// is followed yet.
    ///
    /// Pids belong to the caller's pid namespace.
    ///
    /// # Errors
    ///
    /// `EACCES` or `EPERM` without `CAP_PERFMON` if `kernel.perf_event_paranoid` is above 0; other errors of
    /// `perf_event_open(2)` and `mmap(2)`.
    pub fn open(cpus: &[u32], ring_bytes: usize) -> io::Result<Self> {
        let mut rings = Vec::with_capacity(cpus.len());
        for &cpu in cpus {
            match open::open(cpu) {
                Ok(event) => rings.push(Ring::map(event, ring_bytes)?),
                // The CPU is offline.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { rings, queue: Queue::default() })
    }

    /// Follows `pid` and the processes that it forks. Their undelivered events are included.
    pub fn follow(&mut self, pid: Pid) {
        self.queue.follow(pid);
    }

    /// Follows all processes.
    pub fn follow_all(&mut self) {
        self.queue.follows_all = true;
    }

    /// Delivers starts and names of threads too. Few runs need these events, and servers start many threads.
    pub fn follow_threads(&mut self) {
        self.queue.follows_threads = true;
    }

    /// Passes the undelivered events of followed processes to `sink`, ordered by time. Returns the number
    /// of records that are malformed, or that the kernel dropped because a ring was full.
    ///
    /// Events that occur during this call are left for the next call.
    ///
    /// # Errors
    ///
    /// Errors of `clock_gettime(2)`.
    pub fn drain(&mut self, sink: impl FnMut(MmapEvent)) -> io::Result<u64> {
        // A thread writes a record before its next action, which may happen on another CPU. So if a record older than the
        // horizon is not in a ring yet, its thread has written no other record between this one and the horizon. Records
        // younger than the horizon wait.
        let horizon = open::now()?;
        let queue = &mut self.queue;
        for ring in &mut self.rings {
            ring.drain(|bytes| queue.push(bytes));
        }
        Ok(queue.deliver(horizon, sink))
    }
}

/// Merges the events of all rings by time, and drops the events of processes that are not followed.
#[derive(Debug, Default)]
struct Queue {
    followed: PidTable<Followed>,
    follows_all: bool,
    follows_threads: bool,
    waiting: Vec<MmapEvent>,
    lost: u64,
}

/// Relation of a pid to the followed processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Followed {
    #[default]
    No,
    Running,
    /// The main thread has exited. Other threads may still run.
    Exited,
}

impl Queue {
    fn follow(&mut self, pid: Pid) {
        self.followed.set(pid, Followed::Running);
    }

    /// Parses a record and adds its event.
    fn push(&mut self, bytes: &[u8]) {
        match record::parse(bytes) {
            Some(Record::Event(event)) if event.is_of_thread() && !self.follows_threads => {}
            Some(Record::Event(event)) => self.waiting.push(event),
            Some(Record::Lost(count)) => self.lost = self.lost.saturating_add(count),
            Some(Record::Other) => {}
            // Count a malformed record as lost: it may be a mapping.
            None => self.lost = self.lost.saturating_add(1),
        }
    }

    /// Passes the events up to the time `horizon`, in nanoseconds, to `sink`. Returns the number of newly lost records.
    fn deliver(&mut self, horizon: u64, mut sink: impl FnMut(MmapEvent)) -> u64 {
        // A stable sort keeps the order of records of one ring that have equal times.
        self.waiting.sort_by_key(|event| event.time_ns);
        let due = self.waiting.partition_point(|event| event.time_ns <= horizon);
        for event in self.waiting.drain(..due) {
            let pid = event.pid;
            if self.follows_all {
                sink(event);
                continue;
            }
            match event.kind {
                MmapEventKind::Fork { parent } if self.followed.get(parent) != Followed::No => {
                    self.followed.set(pid, Followed::Running);
                }
                // The kernel reuses the pid of a process that has exited.
                MmapEventKind::Fork { .. } if self.followed.get(pid) == Followed::Exited => {
                    self.followed.set(pid, Followed::No);
                }
                MmapEventKind::Exit if self.followed.get(pid) == Followed::Running => {
                    self.followed.set(pid, Followed::Exited);
                }
                _ => {}
            }
            if self.followed.get(pid) != Followed::No {
                sink(event);
            }
        }
        std::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests;
