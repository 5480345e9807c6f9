//! Allocators without probes, because a process holds the lock of its memory map.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memtrace_host::kernel::LockHolder;
use memtrace_model::{Pid, format};
use memtrace_object::allocators::Allocator;

/// Maximum number of allocators that wait. Further ones get no probes.
const MAX_WAITING: usize = 1024;

/// Interval between two attempts.
const INTERVAL: Duration = Duration::from_secs(1);

/// Allocators that get their probes as soon as no process holds the lock of its memory map.
#[derive(Debug, Default)]
pub(crate) struct PostponedProbes {
    /// Allocators with the processes that have mapped them.
    waiting: VecDeque<(Pid, Allocator)>,
    /// Time of the next attempt.
    next: Option<Instant>,
    /// Allocator of the current attempt, by its process and handle.
    retried: Option<(Pid, Option<PathBuf>)>,
    /// Number of allocators that have waited.
    postponed: u64,
    /// Number of allocators that are not tried again: beyond [`MAX_WAITING`], after another error, or because no process maps
    /// them any more.
    given_up: u64,
}

impl PostponedProbes {
    /// Adds an allocator. Returns the reason for a note, unless the allocator has waited before.
    pub(super) fn postpone(&mut self, pid: Pid, allocator: Allocator, holder: &LockHolder) -> Option<String> {
        self.next = Some(Instant::now() + INTERVAL);
        if self.is_retry(pid, &allocator) {
            self.waiting.push_front((pid, allocator));
            return None;
        }
        self.postponed += 1;
        let reason = format!(
            "no probes yet, because {holder} holds the lock of its memory map and waits, and no process of this machine \
             could fork while probes are inserted"
        );
        if self.waiting.len() >= MAX_WAITING {
            self.given_up += 1;
            return Some(format!("{reason}; too many other allocators wait, so that it stays without probes"));
        }
        self.waiting.push_back((pid, allocator));
        Some(format!("{reason}; end process {} or the server of its FUSE or NFS mount", holder.pid))
    }

    /// Returns the next allocator to try again; `None` if none is due. An attempt that fails calls [`Self::postpone`], so that
    /// no further allocator is due for some time.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(Pid, Allocator)> {
        self.retried = None;
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        let (pid, allocator) = self.waiting.pop_front()?;
        self.retried = Some(key(pid, &allocator));
        Some((pid, allocator))
    }

    /// Returns true if the current attempt is for this allocator.
    pub(super) fn is_retry(&self, pid: Pid, allocator: &Allocator) -> bool {
        self.retried.as_ref() == Some(&key(pid, allocator))
    }

    /// Forgets objects with closed files. Their handles can belong to other files afterwards.
    pub(crate) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        let is_closed = |handle: Option<&Path>| handle.is_some_and(|handle| closed.contains(handle));
        let before = self.waiting.len();
        self.waiting.retain(|(_, allocator)| !is_closed(allocator.object.handle.as_deref()));
        self.given_up += (before - self.waiting.len()) as u64;
    }

    /// Counts an allocator that stays without probes after an attempt.
    pub(super) const fn give_up(&mut self) {
        self.given_up += 1;
    }

    /// Returns a sentence with the number of allocators that have waited; `None` if none has.
    pub(crate) fn note(&self) -> Option<String> {
        if self.postponed == 0 {
            return None;
        }
        let without = self.waiting.len() as u64 + self.given_up;
        Some(format!(
            "the probes of {} were postponed, because a process held the lock of its memory map; {without} of them had none \
             at the end",
            format::counted(self.postponed, "allocator", "allocators"),
        ))
    }
}

fn key(pid: Pid, allocator: &Allocator) -> (Pid, Option<PathBuf>) {
    (pid, allocator.object.handle.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memtrace_model::Object;
    use memtrace_object::allocators::{Kind, Kinds};

    use super::*;

    fn allocator(handle: &str) -> Allocator {
        let object = Object { path: "/lib/a.so".into(), handle: Some(handle.into()), build_id: None, root: None };
        Allocator {
            object: Arc::new(object),
            kinds: Kinds::one(Kind::known("glibc").unwrap()),
            functions: Vec::new(),
            skipped: Vec::new(),
        }
    }

    fn postpone(postponed: &mut PostponedProbes, handle: &str) -> Option<String> {
        let holder = LockHolder { pid: Pid(9), comm: None, user: Some(1000) };
        postponed.postpone(Pid(1), allocator(handle), &holder)
    }

    fn handle_of(due: Option<(Pid, Allocator)>) -> Option<PathBuf> {
        due.and_then(|(_, allocator)| allocator.object.handle.clone())
    }

    #[test]
    fn allocators_are_tried_again_one_by_one() {
        let mut postponed = PostponedProbes::default();
        assert_eq!((handle_of(postponed.take_due(Instant::now())), postponed.note()), (None, None));
        let note = postpone(&mut postponed, "a").unwrap();
        assert!(note.contains("process 9 of user 1000 holds the lock"), "{note}");
        postpone(&mut postponed, "b").unwrap();
        assert_eq!(handle_of(postponed.take_due(Instant::now())), None, "too early");
        let later = || Instant::now() + INTERVAL;
        assert_eq!(handle_of(postponed.take_due(later())), Some("a".into()));
        assert!(postponed.is_retry(Pid(1), &allocator("a")));
        assert_eq!(postpone(&mut postponed, "a"), None, "the user knows it");
        assert_eq!(handle_of(postponed.take_due(Instant::now())), None, "the lock is held still");
        for expected in ["a", "b"] {
            assert_eq!(handle_of(postponed.take_due(later())), Some(expected.into()));
        }
        assert_eq!(handle_of(postponed.take_due(later())), None);
        let note = postponed.note().unwrap();
        assert!(note.contains("2 allocators were postponed") && note.contains("0 of them"), "{note}");
        postpone(&mut postponed, "c").unwrap();
        postponed.forget_files(&HashSet::from(["c".into()]));
        let note = postponed.note().unwrap();
        assert!(note.contains("3 allocators were postponed") && note.contains("1 of them"), "{note}");
    }

    #[test]
    fn closed_files_are_not_tried_again() {
        let mut postponed = PostponedProbes::default();
        for handle in ["a", "b"] {
            postpone(&mut postponed, handle).unwrap();
        }
        postponed.forget_files(&HashSet::from(["a".into()]));
        assert_eq!(handle_of(postponed.take_due(Instant::now() + INTERVAL)), Some("b".into()));
        assert_eq!(handle_of(postponed.take_due(Instant::now() + INTERVAL)), None);
    }

    #[test]
    fn allocators_beyond_the_bound_are_counted() {
        let mut postponed = PostponedProbes::default();
        for number in 0..=MAX_WAITING {
            let note = postpone(&mut postponed, &number.to_string()).unwrap();
            assert_eq!(note.contains("too many other allocators wait"), number == MAX_WAITING);
        }
        let note = postponed.note().unwrap();
        assert!(note.contains("1,025 allocators") && note.contains("1025 of them"), "{note}");
    }
}
