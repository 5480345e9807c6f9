//! Restores the code of patched processes at the end of a run.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use memtrace_host::patcher::Stops;
use memtrace_host::procfs::{self, ControlPage};
use memtrace_model::{AbsAddr, ImageId, Pid};

use super::patcher_thread::{Answer, PatcherThread};
use super::watch::RestoreRequest;
use crate::run_kit::forced_end;

/// Number of attempts to restore the code of a process that does not stop.
const ATTEMPTS: u32 = 3;

/// Longest wait for an answer at once.
const WAIT: Duration = Duration::from_millis(50);

/// Restores the code of `processes`. Returns the stops of those that were restored. A second
/// signal ends the work.
pub(super) fn restore(
    thread: &mut PatcherThread,
    processes: impl Iterator<Item = RestoreRequest>,
    deadline: Instant,
) -> BTreeMap<ImageId, Stops> {
    let mut left: VecDeque<_> = processes.map(|request| (request, 1)).collect();
    let (mut restored, mut current) = (BTreeMap::new(), None);
    loop {
        let time = deadline.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return restored;
        }
        if !thread.is_busy() {
            let Some((request, attempt)) = left.pop_front() else { return restored };
            if forced_end::skips_names() {
                log::warn!("{} processes stay patched; `memtrace detach --all` restores their code", left.len() + 1);
                return restored;
            }
            thread.disable(request);
            current = Some((request, attempt));
        }
        match thread.receive(time.min(WAIT)) {
            // A change that was in progress is undone too.
            Some(Answer::Enabled(id, mapped, Ok(_))) => {
                let (start_time, base) = (mapped.start_time, AbsAddr(mapped.attached.base));
                left.push_front((RestoreRequest { id, start_time, base }, 1));
            }
            Some(Answer::Disabled(id, Ok(stops))) => _ = restored.insert(id, stops),
            Some(Answer::Disabled(_, Err(refusal))) => {
                let again = current.take().filter(|(_, attempt)| refusal.is_temporary() && *attempt < ATTEMPTS);
                match again {
                    Some((request, attempt)) => left.push_back((request, attempt + 1)),
                    None => log::info!("the code of a process is not restored: {refusal}"),
                }
            }
            Some(Answer::Mapped(..) | Answer::SessionEnded(..) | Answer::Enabled(..)) | None => {}
        }
    }
}

/// Restores the code of processes that are not traced and have inherited changed code by a fork, and of processes that were
/// not restored before. `owner`: pid and start time of this memtrace. Returns the number of processes that stay patched.
pub(super) fn restore_children(thread: &mut PatcherThread, owner: (u32, u64), deadline: Instant) -> u64 {
    // After a forced end, a message has already named the processes that stay patched.
    let own = if forced_end::skips_names() { Vec::new() } else { own_processes(owner) };
    if own.is_empty() {
        return 0;
    }
    restore(thread, own.into_iter(), deadline);
    own_processes(owner).len() as u64
}

/// Returns the processes that take samples for this memtrace, according to their control pages.
fn own_processes((pid, start): (u32, u64)) -> Vec<RestoreRequest> {
    let owner = (u64::from(pid), start);
    let request = |(pid, base): (Pid, AbsAddr)| {
        // The start time is read before the page, so that another process that gets the pid later is not changed.
        let start_time = procfs::start_time(pid)?;
        let values = ControlPage::read_once(pid, base).ok()?;
        (values.owner == owner).then_some(RestoreRequest { id: ImageId { pid, ordinal: 0 }, start_time, base })
    };
    procfs::patched_processes().into_iter().filter_map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_restored_without_patched_processes() {
        let mut thread = PatcherThread::start().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        assert!(restore(&mut thread, std::iter::empty(), deadline).is_empty());
        // No memtrace has started at this time.
        assert_eq!(restore_children(&mut thread, (std::process::id(), u64::MAX), deadline), 0);
        let id = ImageId { pid: Pid(u32::MAX), ordinal: 0 };
        let late = [RestoreRequest { id, start_time: 1, base: AbsAddr(0) }];
        assert!(restore(&mut thread, late.into_iter(), Instant::now()).is_empty());
        assert!(!thread.is_busy(), "the time is over");
    }
}
