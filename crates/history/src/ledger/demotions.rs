//! Demoted processes: the ledger does not follow their small blocks.

use memtrace_model::{Amount, Bytes, ImageId, Pid, Tick};
use rustc_hash::FxHashMap;

/// A process that follows only blocks of at least `min_size` from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demoted {
    /// Image of the process at the demotion. The process stays demoted until it exits, even if it calls exec.
    pub image: ImageId,
    /// Size of the smallest block that is followed.
    pub min_size: Bytes,
    /// Time of the demotion.
    pub at: Tick,
}

/// Returns the user of a process; `None` if the user is not known, for example because the process has exited. Users share the
/// ledger. All processes without a known user count as one user.
pub(crate) type UserOf = fn(Pid) -> Option<u32>;

/// Demoted processes, and the limits above which processes are demoted.
#[derive(Debug)]
pub(super) struct Demotions {
    processes: FxHashMap<Pid, DemotedProcess>,
    /// Processes that have exited while other processes still share their memory, each with its last image.
    kept: FxHashMap<Pid, (ImageId, DemotedProcess)>,
    /// Maximum number of demoted processes.
    most: usize,
    /// Number of live blocks above which the shares are compared.
    pub(super) nearly_full: u64,
    /// Number of live blocks that all users share.
    pub(super) room: u64,
    /// Number of events between two comparisons. A sampled block counts as several events.
    interval: u64,
    /// Number of applied events that makes the next comparison due.
    next: u64,
}

/// State of a demoted process.
#[derive(Clone, Copy, Debug)]
pub(super) struct DemotedProcess {
    pub(super) min_size: Bytes,
    pub(super) at: Tick,
    /// Dropped blocks of the BPF programs that were already counted.
    pub(super) seen: Amount,
}

impl DemotedProcess {
    /// Counts the dropped blocks up to the sum `sum`. Returns the blocks that were not counted before.
    pub(super) fn count(&mut self, sum: Amount) -> Amount {
        let new = sum.saturating_sub(self.seen);
        self.seen = self.seen.greater(sum);
        new
    }
}

impl Demotions {
    /// Returns the limits for at most `blocks` live blocks and `processes` processes. `batch`: number of events that are
    /// applied together.
    pub(super) fn new(blocks: u64, processes: u32, batch: u64) -> Self {
        // Between two comparisons, each event adds at most one live block.
        let interval = blocks / 128;
        Self {
            processes: FxHashMap::default(),
            kept: FxHashMap::default(),
            most: processes as usize,
            nearly_full: (blocks - blocks / 10).min(blocks.saturating_sub(2 * batch)),
            room: blocks.saturating_sub(2 * interval + batch).max(blocks / 2),
            interval: interval.max(1),
            next: 0,
        }
    }

    /// Returns true if the shares of users must be compared, with `live` live blocks after this number of events.
    #[inline]
    pub(super) const fn is_due(&self, live: u64, events: u64) -> bool {
        live >= self.nearly_full && events >= self.next
    }

    /// Records that the shares were compared after this number of events.
    pub(super) const fn set_compared(&mut self, events: u64) {
        self.next = events + self.interval;
    }

    /// Returns the state of a process; `None` if it is not demoted.
    pub(super) fn of(&mut self, pid: Pid) -> Option<&mut DemotedProcess> {
        self.processes.get_mut(&pid)
    }

    /// Demotes a process. Returns false if the process already has this minimum size or a larger one, or if too many
    /// processes are demoted.
    pub(super) fn demote(&mut self, Demoted { image, min_size, at }: Demoted) -> bool {
        let is_full = self.processes.len() + self.kept.len() >= self.most;
        match self.processes.get_mut(&image.pid) {
            Some(known) if known.min_size >= min_size => false,
            Some(known) => {
                known.min_size = min_size;
                true
            }
            None if is_full => false,
            None => {
                self.processes.insert(image.pid, DemotedProcess { min_size, at, seen: Amount::default() });
                true
            }
        }
    }

    /// Ends a process that has exited. `kept`: last image of the process, if other processes still share its memory.
    pub(super) fn end(&mut self, pid: Pid, kept: Option<ImageId>) {
        if let (Some(process), Some(image)) = (self.processes.remove(&pid), kept) {
            self.kept.insert(pid, (image, process));
        }
    }

    /// Returns the last image and the state of a process that has exited while other processes still share its memory.
    pub(super) fn kept(&mut self, pid: Pid) -> Option<&mut (ImageId, DemotedProcess)> {
        self.kept.get_mut(&pid)
    }

    /// Forgets an image after the end of the last process that shared its memory.
    pub(super) fn forget_kept(&mut self, image: ImageId) {
        if self.kept.get(&image.pid).is_some_and(|(kept, _)| *kept == image) {
            self.kept.remove(&image.pid);
        }
    }
}
