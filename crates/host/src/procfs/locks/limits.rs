//! Limits of reads that wait for locks: no user can prevent the reads of other users' processes, or delay memtrace for ever.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use memtrace_model::Pid;

/// Time that all slow reads of a user's processes may take together.
const TIME: Duration = Duration::from_secs(16);
/// Time that all slow reads may take together.
const TIME_OF_ALL: Duration = Duration::from_secs(64);
/// Half of the used time is forgiven at this interval.
const FORGIVEN_EACH: Duration = Duration::from_secs(60);

/// A read may take the time that is left, divided by this number, so that a few slow processes do not use up the time.
const PART: u32 = 8;

/// Time that each read may take in any case. Nearly all reads need less.
pub(super) const SHORTEST_TIME: Duration = Duration::from_millis(20);

/// Maximum number of threads that are left behind for the processes of a user. At this limit and the next one, no further
/// process of a user with such a thread is read.
const MOST_LEFT: usize = 64;
/// Maximum number of threads that are left behind for the processes of all users.
const MOST_LEFT_OF_ALL: usize = 256;

/// Used time, and threads that are left behind. All unknown users share one entry.
#[derive(Debug)]
pub(super) struct Limits {
    /// For each process, the number of threads that wait for it, and its user.
    left: BTreeMap<Pid, (usize, Option<u32>)>,
    used: BTreeMap<Option<u32>, Duration>,
    forgiven: Option<Instant>,
}

impl Limits {
    pub(super) const fn new() -> Self {
        Self { left: BTreeMap::new(), used: BTreeMap::new(), forgiven: None }
    }

    /// Returns true if the process may be read. `user` returns the user of the process.
    pub(super) fn permit(&self, pid: Pid, user: impl FnOnce() -> Option<u32>) -> bool {
        if self.left.is_empty() {
            return true;
        }
        if self.left.contains_key(&pid) {
            return false;
        }
        let user = user();
        let of_user = self.left.values().filter(|(_, owner)| *owner == user).map(|(count, _)| count).sum::<usize>();
        let of_all = self.left.values().map(|(count, _)| count).sum::<usize>();
        of_user == 0 || of_user < MOST_LEFT && of_all < MOST_LEFT_OF_ALL
    }

    /// Returns the time that a read of a process of `user` may wait.
    pub(super) fn time(&mut self, user: Option<u32>) -> Duration {
        let forgiven = self.forgiven.get_or_insert_with(Instant::now);
        while forgiven.elapsed() >= FORGIVEN_EACH && !self.used.is_empty() {
            *forgiven += FORGIVEN_EACH;
            self.used.values_mut().for_each(|used| *used /= 2);
            self.used.retain(|_, used| *used >= SHORTEST_TIME);
        }
        if self.used.is_empty() {
            *forgiven = Instant::now();
        }
        let of_user = TIME.saturating_sub(self.used.get(&user).copied().unwrap_or_default());
        let of_all = TIME_OF_ALL.saturating_sub(self.used.values().sum());
        (of_user.min(of_all) / PART).max(SHORTEST_TIME)
    }

    /// Adds the time that a read of a process of `user` has waited.
    pub(super) fn add_used(&mut self, user: Option<u32>, time: Duration) {
        *self.used.entry(user).or_default() += time.saturating_sub(SHORTEST_TIME);
    }

    /// Adds a thread that waits for a process of `user`.
    pub(super) fn add_left(&mut self, pid: Pid, user: Option<u32>) {
        self.left.entry(pid).or_insert((0, user)).0 += 1;
    }

    /// Removes a thread that has waited for the process.
    pub(super) fn remove_left(&mut self, pid: Pid) {
        if let Some((count, _)) = self.left.get_mut(&pid) {
            *count -= 1;
            if *count == 0 {
                self.left.remove(&pid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<u32> = Some(1);
    const OTHER: Option<u32> = Some(2);

    #[test]
    fn slow_reads_of_a_user_share_a_time() {
        let mut limits = Limits::new();
        let mut sum = Duration::ZERO;
        for _ in 0..1000 {
            let time = limits.time(ONE);
            limits.add_used(ONE, time);
            sum += time;
        }
        assert!(sum < TIME + 1000 * SHORTEST_TIME, "{sum:?}");
        assert_eq!([limits.time(ONE), limits.time(OTHER)], [SHORTEST_TIME, TIME / PART]);
        limits.forgiven = Instant::now().checked_sub(FORGIVEN_EACH);
        assert!(limits.time(ONE) > SHORTEST_TIME);
    }

    #[test]
    fn users_together_share_a_time() {
        let mut limits = Limits::new();
        (0..10).for_each(|user| limits.add_used(Some(user), TIME));
        assert_eq!(limits.time(Some(11)), SHORTEST_TIME);
    }

    #[test]
    fn threads_of_a_user_are_limited() {
        let mut limits = Limits::new();
        let most = u32::try_from(MOST_LEFT).unwrap();
        for pid in 0..most {
            assert!(limits.permit(Pid(pid), || ONE));
            limits.add_left(Pid(pid), ONE);
        }
        let permits = |limits: &Limits| [ONE, OTHER].map(|user| limits.permit(Pid(most), || user));
        assert_eq!(permits(&limits), [false, true]);
        assert!(!limits.permit(Pid(0), || OTHER), "a thread waits for this process");
        limits.add_left(Pid(0), ONE);
        limits.remove_left(Pid(0));
        assert_eq!(permits(&limits), [false, true], "another thread waits still");
        limits.remove_left(Pid(0));
        assert_eq!(permits(&limits), [true, true]);
    }
}
