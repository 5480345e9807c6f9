//! Files of targets that were not read, because a file system or a lock of a process did not answer in time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memtrace_model::Pid;

/// Number of entries beyond which further files count as [`UnreadFile::Other`].
const MAX_ENTRIES: usize = 1 << 16;

static COUNTS: Mutex<BTreeMap<UnreadFile, u64>> = Mutex::new(BTreeMap::new());

/// Process or object with a file that was not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreadFile {
    /// File of a process in procfs, or at a path that the process has chosen.
    Process(Pid),
    /// Object with this handle, which several processes can have mapped.
    Object(PathBuf),
    /// Another file, such as a debug file.
    Other,
}

/// Counts a file that was not read.
pub(crate) fn add(file: UnreadFile) {
    add_to(&mut counts(), file);
}

/// Returns how many files were not read since the last call, for each process or object.
pub fn take() -> BTreeMap<UnreadFile, u64> {
    std::mem::take(&mut counts())
}

/// Returns the count of `file`. Tests use it because they run in parallel: a call of `take` would take the counts of other tests.
#[cfg(test)]
pub(crate) fn count_of(file: &UnreadFile) -> u64 {
    counts().get(file).copied().unwrap_or_default()
}

fn counts() -> MutexGuard<'static, BTreeMap<UnreadFile, u64>> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add_to(counts: &mut BTreeMap<UnreadFile, u64>, file: UnreadFile) {
    let has_room = counts.len() < MAX_ENTRIES || counts.contains_key(&file);
    *counts.entry(if has_room { file } else { UnreadFile::Other }).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beyond_the_limit_are_counted_together() {
        let mut counts = BTreeMap::new();
        let most = u32::try_from(MAX_ENTRIES).unwrap();
        for pid in 0..most + 10 {
            add_to(&mut counts, UnreadFile::Process(Pid(pid)));
        }
        add_to(&mut counts, UnreadFile::Process(Pid(7)));
        assert_eq!(counts.len(), MAX_ENTRIES + 1);
        assert_eq!((counts[&UnreadFile::Other], counts[&UnreadFile::Process(Pid(7))]), (10, 2));
        assert_eq!(counts.values().sum::<u64>(), u64::from(most) + 11);
    }
}
