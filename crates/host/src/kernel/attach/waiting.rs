//! Probes that wait for a later attempt, because the kernel found no memory for them.
//!
//! A breakpoint needs a copy of its page, which the kernel charges to the memory cgroup of the process (`__replace_page`,
//! kernel/events/uprobes.c). If the cgroup is at its limit, the attachment fails for all processes of its scope.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memtrace_model::format;

use crate::kernel::attach_point::{AttachPoint, Scope};

/// Reason why probes wait, as a sentence.
pub const WAIT_FOR_MEMORY: &str = "no probes yet, because the kernel finds no memory for them: the memory cgroup of a \
                                   process that maps the file is at its limit";

/// Maximum number of sets of probes that wait. Further ones are not attached.
pub(super) const MAX_WAITING: usize = 1024;

/// Interval between two failed attempts. In each attempt, the kernel tries to reclaim memory of the cgroup.
const INTERVAL: Duration = Duration::from_secs(1);

/// Probes of one object that are attached together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kernel) struct ProbeSet {
    pub(in crate::kernel) scope: Scope,
    pub(in crate::kernel) object: PathBuf,
    /// Programs with their attach points.
    pub(in crate::kernel) points: Vec<(&'static str, AttachPoint)>,
}

impl ProbeSet {
    /// Returns true if `other` has all these probes.
    fn is_part_of(&self, other: &Self) -> bool {
        (self.scope, &self.object) == (other.scope, &other.object)
            && self.points.iter().all(|point| other.points.contains(point))
    }
}

/// Sets of probes that wait for memory.
#[derive(Debug, Default)]
pub(super) struct WaitingProbes {
    queue: VecDeque<ProbeSet>,
    /// Time of the next attempt; `None` before the first set.
    next: Option<Instant>,
    /// Number of sets that have waited and are attached.
    attached: u64,
    /// Number of sets that are not tried again: beyond [`MAX_WAITING`], after another error, or because no process needs the
    /// probes any more.
    given_up: u64,
}

impl WaitingProbes {
    /// Adds a set at `now`, in place of the waiting sets that are parts of it. Returns false if too many sets wait.
    pub(super) fn add(&mut self, set: ProbeSet, now: Instant) -> bool {
        if self.queue.iter().any(|waiting| set.is_part_of(waiting)) {
            return true;
        }
        // New sets must not put off the next attempt.
        if self.queue.is_empty() {
            self.next = Some(now + INTERVAL);
        }
        self.queue.retain(|waiting| !waiting.is_part_of(&set));
        let has_room = self.queue.len() < MAX_WAITING;
        if has_room {
            self.queue.push_back(set);
        } else {
            self.given_up += 1;
        }
        has_room
    }

    /// Adds a set that has waited before, after an attempt at `now`. It becomes the last one, so that one full cgroup delays no
    /// other.
    pub(super) fn add_again(&mut self, set: ProbeSet, now: Instant) {
        self.next = Some(now + INTERVAL);
        self.queue.push_back(set);
    }

    /// Returns the next set to try again; `None` if none is due. If the attempt fails, [`Self::add_again`] must follow.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<ProbeSet> {
        match self.next {
            Some(next) if next <= now => self.queue.pop_front(),
            _ => None,
        }
    }

    /// Counts a set that is attached after all.
    pub(super) const fn count_attached(&mut self) {
        self.attached += 1;
    }

    /// Counts a set that is not tried again.
    pub(super) const fn give_up(&mut self) {
        self.given_up += 1;
    }

    /// Returns the scopes and objects of the waiting sets.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Scope, &Path)> {
        self.queue.iter().map(|set| (set.scope, set.object.as_path()))
    }

    /// Gives up the sets that `is_given_up` accepts.
    pub(super) fn remove(&mut self, is_given_up: impl Fn(&ProbeSet) -> bool) {
        let before = self.queue.len();
        self.queue.retain(|set| !is_given_up(set));
        self.given_up += (before - self.queue.len()) as u64;
    }

    /// Adds the sets of `others`.
    pub(super) fn merge(&mut self, mut others: Self) {
        self.queue.append(&mut others.queue);
        self.next = self.next.max(others.next);
        self.attached += others.attached;
        self.given_up += others.given_up;
    }

    /// Returns a sentence with the number of sets that have waited; `None` if none has.
    pub(super) fn note(&self) -> Option<String> {
        let missing = self.given_up + self.queue.len() as u64;
        let all = self.attached + missing;
        (all > 0).then(|| {
            format!(
                "{} waited, because the memory cgroup of a process was at its limit; {missing} of them had none attached \
                 at the end",
                format::counted(all, "set of probes", "sets of probes"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{FileOffset, Pid};

    use super::*;

    fn set(object: &str) -> ProbeSet {
        ProbeSet { scope: Scope::Process(Pid(1)), object: object.into(), points: Vec::new() }
    }

    fn objects(waiting: &WaitingProbes) -> Vec<&Path> {
        waiting.iter().map(|(_, object)| object).collect()
    }

    #[test]
    fn full_cgroup_delays_no_other() {
        let (mut waiting, now) = (WaitingProbes::default(), Instant::now());
        assert_eq!((waiting.take_due(now), waiting.note()), (None, None));
        waiting.add(set("a"), now);
        waiting.add(set("b"), now);
        assert_eq!(waiting.take_due(now), None, "too early");
        assert_eq!(waiting.take_due(now + INTERVAL), Some(set("a")));
        waiting.add_again(set("a"), now + INTERVAL);
        assert_eq!(waiting.take_due(now + INTERVAL), None, "the kernel has no memory still");
        assert_eq!(objects(&waiting), [Path::new("b"), Path::new("a")]);
        assert_eq!(waiting.take_due(now + 2 * INTERVAL), Some(set("b")));
        waiting.count_attached();
        assert_eq!(waiting.take_due(now + 2 * INTERVAL), Some(set("a")));
        waiting.give_up();
        assert_eq!(waiting.take_due(now + 2 * INTERVAL), None);
        let note = waiting.note().unwrap();
        assert!(note.starts_with("2 sets of probes waited") && note.contains("1 of them"), "{note}");
    }

    #[test]
    fn new_sets_do_not_put_off_the_next_attempt() {
        let (mut waiting, now) = (WaitingProbes::default(), Instant::now());
        waiting.add(set("a"), now);
        waiting.add(set("b"), now + INTERVAL);
        assert_eq!(waiting.take_due(now + INTERVAL), Some(set("a")));
    }

    #[test]
    fn set_waits_in_place_of_its_parts() {
        let point = |offset| ("free", AttachPoint { offset: FileOffset(offset), cookie: None, semaphore: None });
        let points = |offsets: &[u64]| ProbeSet { points: offsets.iter().copied().map(point).collect(), ..set("a") };
        let (mut waiting, now) = (WaitingProbes::default(), Instant::now());
        let other = ProbeSet { scope: Scope::AllProcesses, ..points(&[1]) };
        for set in [points(&[1]), other.clone(), points(&[2]), points(&[2, 3, 1]), points(&[3])] {
            assert!(waiting.add(set, now));
        }
        assert_eq!(waiting.queue, [other, points(&[2, 3, 1])]);
    }

    #[test]
    fn removed_sets_are_given_up() {
        let (mut waiting, now) = (WaitingProbes::default(), Instant::now());
        waiting.add(set("a"), now);
        waiting.add(set("b"), now);
        waiting.remove(|set| set.object == Path::new("a"));
        assert_eq!((objects(&waiting), waiting.given_up), (vec![Path::new("b")], 1));
    }

    #[test]
    fn sets_beyond_the_bound_are_counted() {
        let (mut waiting, now) = (WaitingProbes::default(), Instant::now());
        for number in 0..MAX_WAITING + 2 {
            assert_eq!(waiting.add(set(&number.to_string()), now), number < MAX_WAITING);
        }
        assert_eq!((waiting.queue.len(), waiting.given_up), (MAX_WAITING, 2));
    }
}
