//! Each mapping of code, told by the kernel as it is made.
//!
//! A command that lives for milliseconds ends before anyone can read `/proc/PID/maps`. The kernel writes a perf record for
//! every executable mapping, every `exec`, fork and exit, into one ring a processor; nothing of it is a sample, so a
//! process that does none of these costs nothing.

mod open;
mod record;
mod ring;

use std::collections::BTreeMap;
use std::io;

use record::Record;
use ring::Ring;

use crate::model::Pid;
pub use record::{FileIdentity, MappingKind, MmapEvent};

/// How large each processor's ring is. Some 150 bytes a record: 3,500 mappings between two drains, as many as a hundred
/// short programs make. Root's rings are not held to `perf_event_mlock_kb` (`perf_mmap`, kernel/events/core.c).
const RING_BYTES: usize = 512 * 1024;

/// The kernel's records about the mappings of all processes, kept for those that are followed.
#[derive(Debug)]
pub struct MappingEvents {
    rings: Vec<Ring>,
    queue: Queue,
    build_ids: bool,
}

impl MappingEvents {
    /// Asks the kernel for the records, from now on, of all processors that are online. No process is followed yet.
    ///
    /// Processes are named as the caller's pid namespace names them.
    ///
    /// # Errors
    ///
    /// `EACCES` or `EPERM` without `CAP_PERFMON` (before Linux 5.8 `CAP_SYS_ADMIN`) where `kernel.perf_event_paranoid`
    /// is above 0, and what else `perf_event_open(2)` and `mmap(2)` return.
    pub fn open() -> io::Result<Self> {
        let processors = aya::util::online_cpus().map_err(|(_, error)| error)?;
        let mut rings = Vec::with_capacity(processors.len());
        let mut all_name_build_ids = true;
        for processor in processors {
            match open::open(processor) {
                Ok((event, build_ids)) => {
                    rings.push(Ring::map(event, RING_BYTES)?);
                    all_name_build_ids &= build_ids;
                }
                // The processor went offline since it was listed.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { rings, queue: Queue::default(), build_ids: all_name_build_ids })
    }

    /// Whether files are told by their build-ids (since Linux 5.12), not by device and inode.
    #[must_use]
    pub fn name_build_ids(&self) -> bool {
        self.build_ids
    }

    /// Keeps the records of `pid` and of the processes that it forks: those not drained yet, and those to come.
    pub fn follow(&mut self, pid: Pid) {
        self.queue.follow(pid);
    }

    /// Keeps the records of all processes.
    pub fn follow_all(&mut self) {
        self.queue.all = true;
    }

    /// Hands over what happened in followed processes since the last call, each process' notices in their true order, and
    /// returns how many records of any process the kernel had no room for.
    ///
    /// What happens during the call is left for the next one.
    ///
    /// # Errors
    ///
    /// What the clock returns.
    pub fn drain(&mut self, sink: impl FnMut(MmapEvent)) -> io::Result<u64> {
        // A thread writes a record before it can do the next thing, perhaps on another processor. So a record from before
        // this moment is in its ring already or has no successor from before this moment; taking no others keeps the order.
        let horizon = open::now()?;
        let queue = &mut self.queue;
        for ring in &mut self.rings {
            ring.drain(|bytes| queue.push(bytes));
        }
        Ok(queue.deliver(horizon, sink))
    }
}

/// Puts the records of several rings into one order, and keeps those of followed processes.
#[derive(Debug, Default)]
struct Queue {
    /// The processes that are followed, and whether their first thread has ended.
    followed: BTreeMap<Pid, bool>,
    /// Whether all are.
    all: bool,
    waiting: Vec<MmapEvent>,
    lost: u64,
}

impl Queue {
    fn follow(&mut self, pid: Pid) {
        self.followed.insert(pid, false);
    }

    /// Takes up a record as it lies in a ring.
    fn push(&mut self, bytes: &[u8]) {
        match record::parse(bytes) {
            Some(Record::ProcessEvent(notice)) => self.waiting.push(notice),
            Some(Record::Lost(count)) => self.lost = self.lost.saturating_add(count),
            Some(Record::Other) => {}
            // A record that can't be understood is a mapping that is not known.
            None => self.lost = self.lost.saturating_add(1),
        }
    }

    /// Hands over what is not younger than `horizon`, and returns how many records were lost since the last call.
    fn deliver(&mut self, horizon: u64, mut sink: impl FnMut(MmapEvent)) -> u64 {
        // Stable: records of one ring with equal times stay in their order.
        self.waiting.sort_by_key(|notice| notice.time_ns);
        let due = self.waiting.partition_point(|notice| notice.time_ns <= horizon);
        for notice in self.waiting.drain(..due) {
            let pid = notice.pid;
            if self.all {
                sink(notice);
                continue;
            }
            match notice.kind {
                MappingKind::Fork { parent } if self.followed.contains_key(&parent) => {
                    self.followed.insert(pid, false);
                }
                // The pid of a process that was followed names another now.
                MappingKind::Fork { .. } if self.followed.get(&pid) == Some(&true) => {
                    self.followed.remove(&pid);
                }
                // Not the end yet where other threads live on.
                MappingKind::Exit => {
                    self.followed.entry(pid).and_modify(|exited| *exited = true);
                }
                _ => {}
            }
            if self.followed.contains_key(&pid) {
                sink(notice);
            }
        }
        std::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests;
